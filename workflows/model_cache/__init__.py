"""ModelCache: weights staged on every cluster that the cache selects.

`workflow` has signals, queries and the loop. Its parts `clusters`, `revision`, `credential`, `staging` and `users` do the work; what they
decide and report are the pure functions of `spec`, `plan`, `observation`, `results`, `claims`, `reports`
and `status`.
"""
