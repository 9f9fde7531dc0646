"""InferenceCluster: connection, observation and published capacity of one cluster.

`workflow` has the signals, the queries and the loop. Its parts, such as `classes`,
`connecting`, `observer`, `reporter`, `stack` and `cloud`, do the work. A part may
receive other parts as arguments, and calls back only `context.publish()`. Pure
functions in `spec`, `reports` and `status` contain the decisions and reports.
"""
