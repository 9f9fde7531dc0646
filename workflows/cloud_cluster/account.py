"""Read a CloudCluster's account and its unused node counts from a manifest. Pure."""

from collections.abc import Iterator
from typing import Any

from api_types import names
from api_types.messages.clouds import CloudAccount, CloudOrder


def account_of(
    cluster: str, uid: str, manifest: dict[str, Any], before: CloudAccount | None
) -> CloudAccount | None:
    """Return the cloud account of a manifest.

    The pinned values of `before` are kept. Return None if Modelplane creates no
    clusters on the manifest's source.
    """
    origin = manifest.get("spec", {}).get("cluster", {})
    source = origin.get("source", "")
    block = origin.get(source.lower())
    if source not in ("GKE", "EKS") or not isinstance(block, dict):
        return None
    credentials = block.get("credentials") or {}
    secret = names.cloud_secret(
        source,
        credentials.get("type", "ClusterProviderConfig"),
        credentials.get("name", "default"),
    )
    if before:
        pinned = {"installation": before.installation, "project": before.project}
    else:
        pinned = {"project": block.get("project") or ""}
    return CloudAccount(
        provider=source,
        cluster=cluster,
        cluster_uid=uid,
        secret=secret,
        region=block.get("region", ""),
        **pinned,
    )


def ordered_account(
    cluster: str, uid: str, order: CloudOrder, before: CloudAccount | None
) -> CloudAccount | None:
    """Return the cloud account of an order.

    If this workflow has lost its state (`before` is None), the order contains the
    values that the InferenceCluster has pinned.
    """
    return account_of(cluster, uid, order.manifest, before or order.account)


def idle_counts(
    before: dict[str, Any], manifest: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield each pool whose changed `nodeCount` has no effect, with a message.

    An autoscaled pool uses `nodeCount` only when it is created.
    """
    counts = {pool.get("name"): pool.get("nodeCount") for pool in _pools(before)}
    for pool in _pools(manifest):
        name, count = pool.get("name", ""), pool.get("nodeCount")
        is_changed = name in counts and counts[name] != count
        if is_changed and pool.get("maxNodeCount") is not None:
            yield (
                name,
                (
                    f"pool {name}: nodeCount {count} has no effect on an existing "
                    "pool: its autoscaler chooses between minNodeCount and maxNodeCount"
                ),
            )


def _pools(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return manifest.get("spec", {}).get("nodePools") or []
