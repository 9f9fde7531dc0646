"""The desired objects of a cluster at its cloud, computed without calls.

A graph of objects follows from an InferenceCluster, the classes of its pools, the settings,
and known facts about the cloud. `modelplane plan` shows the same graph.
"""
