"""What a call writes and returns: places, outputs and objects."""
