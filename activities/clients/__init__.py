"""The outside systems' own libraries, each behind a Protocol of a package that uses it: one package per system.

Protocols are declared by their users: `ClusterApi` in `cluster_objects`, `SecretStore` in `secrets`, `RevisionSource` in `caches`. Only the
worker and `secrets/selection.py` import from here. Not here: what to do with an answer.
"""
