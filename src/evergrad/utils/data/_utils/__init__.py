"""The parts of the loader: collating, fetching, worker processes, shared memory, snapshots."""
