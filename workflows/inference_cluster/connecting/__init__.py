"""How an InferenceCluster is connected to: attempts, what they wait for, and the wait for a worker that serves it."""
