"""Functions that decide by the data: segments of one call, and programs as trees of stages."""
