"""The `ClusterApi` protocol, and the kinds, ownership and deletion of cluster objects.

The package has the rules that all activities on clusters share. SDKs are imported in
`clients`, and `render` decides which objects to apply. `observe` must not import
`deletion` and `namespaces`, because these call a cluster.
"""
