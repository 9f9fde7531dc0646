"""Activities of InferenceCluster: connect to a cluster, and watch it.

`watch` follows the objects of one cluster and signals their owners; `capacity` maps the objects of its schedulers to free capacity. Not
here: creating or deleting clusters (`clouds`), installing the serving stack (`stack`). Imports nothing of `workloads` and `caches`.
"""
