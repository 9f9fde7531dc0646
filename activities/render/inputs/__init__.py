"""What rendering reads: replica, cache, cluster and settings by value, and the readers that check untrusted specs.

The lowest package of `render`: it knows no Kubernetes object.
"""
