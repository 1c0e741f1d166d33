"""Programs written for other libraries."""
