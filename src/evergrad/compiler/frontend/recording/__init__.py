"""Calls with effects outside of tensors, recorded once and replayed at every run."""
