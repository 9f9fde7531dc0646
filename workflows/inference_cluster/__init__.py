"""InferenceCluster: contact, observation and published capacity of one cluster.

`workflow` has signals, queries and the loop; its parts take explicit inputs and do not call back.
"""
