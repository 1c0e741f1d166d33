"""Random streams: bit generators, distributions, the generator of each thread."""
