"""Activities of ModelReplica: apply, prune and delete a replica's objects.

They also copy the Secrets that its pods reference. `render` computes the objects to
apply, and `observe` interprets the objects that the cluster returns. This package does
not import `caches` or `clusters`.
"""
