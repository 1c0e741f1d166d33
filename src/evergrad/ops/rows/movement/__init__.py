"""Views and copies of the same elements in another shape or order."""
