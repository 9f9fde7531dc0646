"""InferenceCluster: contact, observation and published capacity of one cluster.

`workflow` has signals, queries and the loop. Its parts `classes`, `connection`, `observer` and `reporter` take explicit inputs and do not
call back; what they decide and report are the pure functions of `spec`, `reports` and `status`.
"""
