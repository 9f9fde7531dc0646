"""Activities: calls to systems outside Temporal, and pure rendering and observation.

Each package serves one entity or one outside system. An activity is a thin, idempotent
shell over Protocols:

* `workloads`: a ModelReplica on its cluster
* `caches`: a ModelCache, its revisions and its staging on clusters
* `clusters`: an InferenceCluster, its connection, its watch, its free capacity
* `messaging`: signals and queries between entities, through Temporal's client
* `clouds` (`clouds/gke`, `clouds/eks`): the cloud objects of a provisioned cluster
* `stack`: the serving stack that is installed on a cluster
* `routing`: HTTPRoutes of ModelServices on the control cluster

Shared packages: `render` computes the objects to apply and `observe` interprets the
objects that a cluster returns; both are pure. `cluster_objects` holds the Kubernetes
API as a Protocol, ownership and deletion. `secrets` holds the secret store as a
Protocol. `watching` keeps watches running. `log` configures the log of the worker.
`probes` serves its health and metrics. SDKs are imported in `clients` and, for each
cloud, in its package of `clouds`.

Workflows import from here and must not reach an SDK. Therefore the worker creates the
clients and passes them to the activities. The import contracts in pyproject.toml
enforce the layering.
"""
