"""Python numbers that vary between calls, as inputs of one program."""
