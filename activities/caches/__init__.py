"""Activities of ModelCache: resolve a revision, stage an artifact, delete it.

`render/cache` computes the objects to apply, and `observe/cache.py` interprets the
objects that the cluster returns. This package does not import `workloads` or
`clusters`.
"""
