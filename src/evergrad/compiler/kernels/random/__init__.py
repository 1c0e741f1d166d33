"""Random numbers: op rows that exist only in compiled graphs, and their kernels."""
