"""The Kubernetes API behind `ClusterApi`: kubeconfigs, sessions, discovery, errors, rate limits.

Only `session.py` imports the Kubernetes SDK.
"""
