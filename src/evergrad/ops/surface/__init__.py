"""The public surface: names, methods, in-place forms, conversions."""
