"""Connect to a cluster: attempts, waits after failures, and waits for a worker."""
