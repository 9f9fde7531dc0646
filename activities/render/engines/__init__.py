"""The engines of a replica: the checked spec, pods, device claims, workloads, queueing.

Objects that send requests to the pods belong to `routing`. Imports `objects` and
`inputs`.
"""
