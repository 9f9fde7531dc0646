"""The inputs of rendering, and the readers that check untrusted specs.

Replica, cache, cluster and settings are passed by value. This is the lowest package of
`render` and knows no Kubernetes object.
"""
