"""The HTTP front: serves the Kubernetes API group `modelplane.ai`.

The state of all objects comes from Temporal workflows. `access/` authenticates and
authorizes users, `store/` keeps the current state of all objects in memory, `serving/`
answers API requests, `scaling/` serves autoscalers, and `commands/` serves requests
that only the `modelplane` CLI sends. The behaviour of objects belongs to `workflows/`,
and the command line to `client/`.
"""
