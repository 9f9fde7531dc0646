"""ModelCache: weights staged on every cluster that the cache selects.

`workflow` has the signals, the queries and the loop. Its parts `clusters`, `revision`,
`credential`, `staging` and `users` do the work. The pure functions of `spec`, `plan`,
`claims`, `reports` and `status` contain the decisions and reports. The functions of
`sites`, `observation` and `results` change the state that they receive.
"""
