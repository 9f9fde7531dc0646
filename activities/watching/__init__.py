"""Watching a cluster: copies of selections that are kept current, whether it answers, and signals to owners about what changed.

What is watched, and what an owner should know of it, is in `clusters/watch` and `routing`. Imports `cluster_objects`.
"""
