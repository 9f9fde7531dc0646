"""ModelDeployment: wanted replicas, rollout, and the ModelReplicas it owns.

`workflow` has signals, queries and the loop; its parts take explicit inputs and do not call back.
"""
