"""Running an executable: calls, argument blocks, the thread pool, RNG state."""
