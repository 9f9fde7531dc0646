"""Install, observe and remove the serving stack of a cluster, and single Helm releases.

`render/stack` defines the parts of a stack, `observe/stack` checks their readiness, and
the InferenceCluster workflow decides when each step runs. Helm is behind
`clients/helm/port.py`, the only module of `clients` that is imported here. Every
activity is idempotent and may be killed at any point.
"""
