"""Clusters at clouds: what one consists of, and the activities that create, change and delete it.

Pure is what is wanted: from an InferenceCluster, the classes of its pools, settings and what is known of the cloud to a graph of objects
(`graph`, `desired`, `owner`, `counts`, `pools`), which `modelplane plan` shows too. `lifecycle` is what every object goes through,
`provider` what differs from cloud to cloud; each cloud is a package. `activities` are those of CloudCluster, the same for all clouds;
`accounts` resolves credentials, `in_cluster` does what is in the clusters. Spec: provisioning.md 2 to 7. Not here: the order of the work,
which is the workflow's.
"""
