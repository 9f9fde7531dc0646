"""Turn a ModelReplica or a ModelCache into the objects of one cluster.

Pure functions over plain data: no clock, no network, no Kubernetes SDK, no secret value. Equal input gives equal bytes on any worker, so a
hash of the result is all that a workflow has to remember. `replica.py` is the entry for a replica, `cache/volumes.py` for a cache; each
package imports only those after it: replica, routing, engines and cache (side by side), objects, inputs.
"""
