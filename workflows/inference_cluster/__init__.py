"""InferenceCluster: contact, observation and published capacity of one cluster.

`workflow` has signals, queries and the loop. Its parts `classes`, `connection`, `observer` and `reporter` do the work, and may get other
parts; `context.publish()` is their only call back. What they decide and report are the pure functions of `spec`, `reports` and `status`.
"""
