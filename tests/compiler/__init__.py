"""The compiler against eager evaluation: ops, random programs, training steps, failures."""
