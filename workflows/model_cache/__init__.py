"""ModelCache: weights staged on every cluster that the cache selects.

`workflow` has signals, queries and the loop; `plan` decides the next step per cluster as a pure function.
"""
