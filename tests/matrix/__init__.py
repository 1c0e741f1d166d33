"""The op matrix: every check on every sample of every row of the op table."""
