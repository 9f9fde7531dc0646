"""The state of the fleet: clusters, the ledger of replicas, and overlays.

The package also reads manifests into this state and packs it (`snapshots`). It does not
choose places for replicas (`placement` does).
"""
