"""The Kubernetes API behind `ClusterApi`.

It covers kubeconfigs, sessions, discovery, errors and rate limits. Only `session.py`
imports the Kubernetes SDK.
"""
