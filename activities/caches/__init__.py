"""Activities of ModelCache: resolve a revision, stage an artifact, delete it.

`artifact_objects` finds what exists of an artifact on a cluster, and `claims` checks volume
claims. `render/cache` computes the objects to apply, and `observe/cache.py` interprets the
objects that the cluster returns. This package does not import `workloads` or `clusters`.
"""
