"""The kinds that this release serves: each has a workflow type of the same name.

Apart from the registry, so that a command knows them without importing every workflow.
"""

SERVED = ("InferenceClass", "InferenceCluster", "ModelCache", "ModelDeployment", "ModelReplica")
