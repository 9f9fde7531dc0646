"""The kinds that this release serves: each has a workflow type of the same name.

Not in the registry, so that a command can import them without importing every workflow.
"""

SERVED = ("InferenceClass", "InferenceCluster", "ModelCache", "ModelDeployment", "ModelReplica")
