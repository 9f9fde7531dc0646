"""Activities: calls to systems outside Temporal, and the pure rendering and reading of what they apply and observe.

Activities stand with the entity that they serve; each package is a thin, repeatable shell over Protocols:

* `workloads`: a ModelReplica on its cluster
* `caches`: a ModelCache, its revisions and its staging on clusters
* `clusters`: an InferenceCluster, its connection, its watch, its free capacity
* `messaging`: signals and queries between entities, through Temporal's client
* `clouds` (not here yet; `clouds/gke`, `clouds/eks`): the cloud objects of a provisioned cluster
* `stack` (not here yet): the serving stack that is installed on a cluster
* `routing` (not here yet): HTTPRoutes of ModelServices on the control cluster

What they share: `render` (what to apply) and `observe` (what a cluster shows) are pure; `cluster_objects` is the Kubernetes API as a
Protocol, ownership and deletion; `secrets` is the secret store as a Protocol. Only `clients` imports SDKs. `log` is the log of the worker.
The worker builds their classes and passes them in, because workflows import from here and may reach no SDK. The contracts in pyproject.toml
hold the order of imports.
"""
