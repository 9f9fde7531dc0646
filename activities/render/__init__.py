"""Render a ModelReplica or a ModelCache into the objects of one cluster.

Rendering consists of pure functions over plain data: no clock, no network, no
Kubernetes SDK, no secret value. Equal input results in equal bytes on any worker, so a
workflow only has to store a hash of the result. `replica.py` renders a replica,
`cache/volumes.py` a cache. Each package imports only packages after it in this list:
replica, routing, engines and cache (side by side), objects, inputs.
"""
