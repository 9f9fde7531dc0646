"""Turn a ModelReplica or a ModelCache into the objects of one cluster.

Pure functions over plain data: no clock, no network, no Kubernetes SDK, no secret value. Equal input gives equal bytes on any worker, so a
hash of the result is all that a workflow has to remember.
"""
