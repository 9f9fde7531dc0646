"""Activities of ModelCache: resolve a revision, stage an artifact on a cluster, delete it there.

What is applied is decided in `render/cache`, what is read back in `observe/cache.py`. Imports nothing of `workloads` and `clusters`.
"""
