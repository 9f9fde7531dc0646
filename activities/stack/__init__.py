"""Install, observe and remove the serving stack of a cluster, and single Helm releases for whoever needs one.

What a stack consists of is in `render/stack`, what is ready in `observe/stack`, when which step is taken is the InferenceCluster's. Helm is
behind `clients/helm/port.py`, the only module of `clients` that is imported here. Every activity may run twice, and be killed at any point.
"""
