"""What all activities on clusters share: the `ClusterApi` protocol, the kinds that we apply and watch, ownership, deletion until gone.

Not here: any SDK (`clients`), any choice of what to apply (`render`). `observe` may not import `deletion` and `namespaces`, which call a
cluster.
"""
