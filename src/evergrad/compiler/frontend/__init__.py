"""Python to graph: capture, guards on Python state, outputs, and the split of a joint graph."""
