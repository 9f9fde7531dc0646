"""The HTTP front: the Kubernetes API of `modelplane.ai`, whose store is the workflows of the objects.

`access/` says who asks and what they may do, `store/` keeps the present state of all objects for reading, `serving/` answers requests,
`scaling/` those of autoscalers, and `commands/` those that only `modelplane` makes.
Not here: what an object does (`workflows/`), or the command line (`client/`).
"""
