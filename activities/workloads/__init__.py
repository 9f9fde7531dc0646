"""Activities of ModelReplica: apply, prune and delete the objects of one replica, and copy the Secrets that its pods name.

What is applied is decided in `render`, what is read back in `observe`. Imports nothing of `caches` and `clusters`.
"""
