"""Executables on disk: fingerprints, serialization, bindings to the process."""
