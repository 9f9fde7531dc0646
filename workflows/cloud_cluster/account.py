"""What a CloudCluster reads of a manifest: whose objects it makes, and which changes do nothing. Pure."""

from collections.abc import Iterator
from typing import Any

from api_types import names
from api_types.messages.clouds import CloudAccount, CloudOrder


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


def ordered_account(cluster: str, uid: str, order: CloudOrder, before: CloudAccount | None) -> CloudAccount | None:
    """Give the account of an order; where nothing is known any more, with what was pinned when the order's sender last heard of it."""
    return account_of(cluster, uid, order.manifest, before or order.account)


def idle_counts(before: dict[str, Any], manifest: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Give the pools whose `nodeCount` changed though it counts only when they are created, each with what to say."""
    counts = {pool.get("name"): pool.get("nodeCount") for pool in _pools(before)}
    for pool in _pools(manifest):
        name, count = pool.get("name", ""), pool.get("nodeCount")
        if pool.get("maxNodeCount") is not None and name in counts and counts[name] != count:
            yield name, f"pool {name}: nodeCount {count} has no effect on a pool that is there, its autoscaler decides between min and max"


def _pools(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return manifest.get("spec", {}).get("nodePools") or []
