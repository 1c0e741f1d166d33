"""The variable-shape algebra."""
