"""ModelCache: weights staged on every cluster that the cache selects.

`workflow` has signals, queries and the loop. Its parts `clusters`, `revision`, `credential`, `staging` and `users` do the work. What they
decide and report are the pure functions of `spec`, `plan`, `claims`, `reports` and `status`; the functions of `observation` and `results`
change the state that they are given.
"""
