"""What is known: clusters, deployments, the ledger of charged nodes, and overlays to try changes on.

Here too: reading manifests into it, and writing it down (`snapshots`). Not here: any choice of a place for a replica (`placement`).
"""
