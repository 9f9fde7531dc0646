"""Clusters at clouds: their objects, and the activities that manage the objects.

The desired objects are computed without calls: a graph of objects follows from an
InferenceCluster, the classes of its pools, the settings, and known facts about the
cloud (`graph`, `desired`, `owner`, `counts`, `pools`). `modelplane plan` shows the same
graph. `lifecycle` implements the steps that every object goes through, and `provider`
is the interface to one cloud. Each cloud is a package. `activities` has the activities
of CloudCluster, which are the same for all clouds. `accounts` resolves credentials, and
`in_cluster` handles the objects that are inside the clusters. The CloudCluster workflow
decides the order of the work.
"""
