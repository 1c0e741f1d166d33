"""Python state that a function can reach: the places that hold it, found, read and written."""
