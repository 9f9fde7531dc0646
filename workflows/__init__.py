"""The memory: one module per entity, saying what happens in which order.

No I/O, no wall clock, no randomness of its own: what touches the world is an activity, what thinks hard is a local activity. Nothing here
imports a cloud, Kubernetes or Helm SDK.
"""
