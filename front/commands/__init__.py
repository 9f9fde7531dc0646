"""What `modelplane` asks of a front beside the Kubernetes API: retries, earlier templates of deployments, and ServingStacks.

No client of Kubernetes knows these, so they are below `/v1` and in no document of that API.
"""
