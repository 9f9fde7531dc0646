"""Activities of InferenceCluster: connect to a cluster, and watch it.

`watch` follows the objects of one cluster and signals their owners. `capacity` maps the
objects of its schedulers to free capacity. Creating and deleting clusters is in
`clouds`, installing the serving stack in `stack`. This package imports nothing from
`workloads` and `caches`.
"""
