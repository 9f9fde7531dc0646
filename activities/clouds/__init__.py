"""Clusters at clouds: their objects, and the activities that manage the objects.

`desired` computes the graph of desired objects without calls. `lifecycle` implements the
steps that every object goes through, and `provider` is the interface to one cloud. Each
cloud is a package. `activities` has the activities of CloudCluster, which are the same for
all clouds; `orders` reads what they receive and `results` builds what they return.
`accounts` resolves credentials, and `in_cluster` handles the objects that are inside the
clusters. The CloudCluster workflow decides the order of the work.
"""
