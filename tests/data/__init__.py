"""Loading data: data sets, samplers, batches, worker processes and snapshots."""
