"""The engines of a replica: the checked spec, pods, device claims, workloads, disaggregation, queueing.

Not here: what sends requests to the pods (`routing`). Imports `objects` and `inputs`.
"""
