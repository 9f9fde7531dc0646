"""Whose objects a CloudCluster makes, as the manifest says it. Pure."""

from typing import Any

from api_types import names
from api_types.messages.clouds import CloudAccount


def account_of(cluster: str, uid: str, manifest: dict[str, Any], before: CloudAccount | None) -> CloudAccount | None:
    """Give the account of a manifest, with what was pinned before; None for a source that no cluster is created at."""
    origin = manifest.get("spec", {}).get("cluster", {})
    source = origin.get("source", "")
    block = origin.get(source.lower())
    if source not in ("GKE", "EKS") or not isinstance(block, dict):
        return None
    credentials = block.get("credentials") or {}
    secret = names.cloud_secret(source, credentials.get("type", "ClusterProviderConfig"), credentials.get("name", "default"))
    pinned = {"installation": before.installation, "project": before.project} if before else {"project": block.get("project") or ""}
    return CloudAccount(provider=source, cluster=cluster, cluster_uid=uid, secret=secret, region=block.get("region", ""), **pinned)
