"""Memory exchanged with other array libraries."""
