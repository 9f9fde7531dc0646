"""What a cluster consists of at a cloud: desired objects, with the calls that create them.

Pure: from an InferenceCluster, the classes of its pools, settings and what is known of the cloud to a graph of objects. Here is what all
clouds share (the graph, owner marks, node counts, node labels); each cloud is a package. Spec: provisioning.md 2, 5, 6 and 7. May import
`api_types`. Not here: calls. Nothing is created yet; `modelplane plan` shows the graph.
"""
