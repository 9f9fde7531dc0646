"""What a connected cluster lacks, with the next step of a person. Pure.

Placement avoids a cluster for a deployment that uses a missing feature, and a pool
whose devices cannot be claimed. Other gaps are only shown. A fact that is unknown is no
gap, and neither is anything that the installation of a managed stack still adds.
"""

from collections.abc import Mapping
from typing import Any

from api_types.messages.observations import ObservedNodes
from api_types.pins.features import POOLS, known
from workflows.inference_cluster.spec import is_managed
from workflows.inference_cluster.state import ClusterState

FEATURES_AVAILABLE = "FeaturesAvailable"
"""The type of the condition that lists gaps. It is present only while there are any."""
MISSING = "Missing"

Pool = Mapping[str, Any]


def missing_features(state: ClusterState) -> list[str]:
    """Return the keys of the features that the cluster lacks.

    A cluster that routes to plain Services needs no pools.
    """
    if state.facts is None or _is_installing(state):
        return []
    routed = state.facts.routing == "pool"
    return [
        feature.key
        for feature in known(state.facts.missing_features)
        if routed or feature is not POOLS
    ]


def unusable(state: ClusterState, devices: list[dict[str, Any]]) -> str:
    """Return why the devices of a pool cannot be claimed on the cluster, or ""."""
    classes = state.facts.device_classes if state.facts else None
    if classes is None or _is_installing(state):
        return ""
    absent: dict[str, None] = {}
    for device in devices:
        name = device.get("deviceClassName")
        if device.get("claim", "DRA") == "DRA" and name and name not in classes:
            driver = device.get("driver") or name
            text = f"DeviceClass {name} does not exist: install the DRA driver {driver}"
            absent[text] = None
    return "; ".join(absent)


def gaps(state: ClusterState) -> list[str]:
    """Return a text for everything that the cluster lacks."""
    found = [feature.lacking() for feature in known(missing_features(state))]
    nodes = state.observed.nodes if state.observed else []
    observed = {each.pool: each for each in nodes}
    for pool in state.pools:
        text = pool.get("unusable") or (
            ""
            if _is_installing(state)
            else _unpublished(pool, observed.get(pool["name"]))
        )
        if text:
            found.append(f"pool {pool['name']}: {text}")
    return found


def _unpublished(pool: Pool, nodes: ObservedNodes | None) -> str:
    """Return which devices the nodes of a pool do not offer, or "".

    A new node offers its devices only after some time, so this does not prevent
    placement.
    """
    if nodes is None or not nodes.ready:
        return ""
    claims = {device.get("claim", "DRA"): device for device in pool["devices"]}
    if "DRA" in claims and not nodes.devices:
        driver = claims["DRA"].get("driver")
        return (
            f"none of its {nodes.ready} Ready nodes publishes devices: check the pods "
            f"of the DRA driver {driver} on these nodes, and the taints that they "
            "tolerate"
        )
    plugin = claims.get("DevicePlugin")
    resource = str(plugin.get("resourceName") or "") if plugin else ""
    if resource and nodes.resources is not None and resource not in nodes.resources:
        return (
            f"none of its {nodes.ready} Ready nodes offers {resource}: install the "
            "device plugin of this resource, or check its pods on these nodes"
        )
    return ""


def _is_installing(state: ClusterState) -> bool:
    return is_managed(state) and not state.stack.complete
