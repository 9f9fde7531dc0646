"""The libraries of outside systems, one package per system, each behind a Protocol.

The packages that use a Protocol declare it: `ClusterApi` in `cluster_objects`,
`SecretStore` in `secrets`, `RevisionSource` in `caches`. Only the worker and
`secrets/selection.py` import from here. Decisions about a response do not belong here.
"""
