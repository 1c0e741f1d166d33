"""Functions made of rows."""
