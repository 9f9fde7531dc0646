"""All objects of a GKE cluster."""

import re
from collections.abc import Iterator, Mapping

from activities.clouds.counts import count_warnings
from activities.clouds.desired import INVALID_INPUT, Desired, Problem, refused_cluster
from activities.clouds.gke.wanted.cluster import CLUSTER, cluster_object, counts_of, gpu_pool, nodes_of
from activities.clouds.gke.wanted.foundation import API, VPC, foundation
from activities.clouds.gke.wanted.inputs import GkeFacts, GkeInputs
from activities.clouds.graph import Call, DesiredObject, creation_order
from activities.clouds.nodes import system_nodes
from activities.clouds.owner import owner_of
from activities.clouds.pools import CloudPool, cloud_pools
from activities.clouds.storage_class import storage_class
from activities.clouds.versions import version_problems, version_warnings
from api_types.resources.inference_class import GkeNodes, InferenceClass
from api_types.resources.inference_cluster import GkeCluster, InferenceCluster
from api_types.sections.clouds import GkeSettings

CONNECTION = "conn"
STORAGE_CLASS = "sc"
CACHE_CLASS = "modelplane-rwx"

_REGION = re.compile(r"[a-z]+-[a-z]+[0-9]+")
_ZONE = re.compile(r"[a-z]+-[a-z]+[0-9]+-[a-z]")


def gke_objects(
    installation: str, cluster: InferenceCluster, classes: Mapping[str, InferenceClass], settings: GkeSettings, facts: GkeFacts
) -> Desired:
    """Give the objects of a cluster with source GKE, and what of it cannot be created. Raises ValueError for another source."""
    gke = cluster.spec.cluster.gke
    if gke is None:
        raise ValueError("the cluster has no block for GKE")
    pools, refused = cloud_pools(cluster, classes, "GKE", lambda block: block.gke)
    refused += [*version_problems(gke.kubernetes_version, minor_only=False), *_place_problems(gke, cluster), *_range_problems(settings)]
    inputs = GkeInputs(owner_of(installation, cluster), gke, settings, gke.project or facts.project)
    warnings = [*version_warnings(gke.kubernetes_version)]
    if refused_cluster(refused):
        return Desired((), tuple(refused), tuple(warnings))
    for pool in pools:
        warnings += [*count_warnings(pool.pool, counts_of(pool)), *_zone_warnings(inputs, pool)]
    return Desired(tuple(creation_order(_objects(inputs, pools))), tuple(refused), tuple(warnings))


def _objects(inputs: GkeInputs, pools: list[CloudPool[GkeNodes]]) -> list[DesiredObject]:
    return [
        *foundation(inputs),
        cluster_object(inputs),
        *(gpu_pool(inputs, pool) for pool in pools),
        DesiredObject(CONNECTION, "Connection", inputs.owner.cluster, (CLUSTER,), (), "API server answers /readyz"),
        system_nodes(CONNECTION),
        _storage_class(inputs),
    ]


def _storage_class(inputs: GkeInputs) -> DesiredObject:
    # Without the network the driver takes the network `default`, and claims wait for ever.
    parameters = {"tier": "enterprise", "network": inputs.owner.base}
    manifest = storage_class(CACHE_CLASS, "filestore.csi.storage.gke.io", parameters, expandable=True)
    call = Call("kubernetes", "apply", {"manifest": manifest})
    return DesiredObject(STORAGE_CLASS, "StorageClass", CACHE_CLASS, (CONNECTION, VPC, API), (call,), "stored")


def _place_problems(gke: GkeCluster, cluster: InferenceCluster) -> Iterator[Problem]:
    if _ZONE.fullmatch(gke.region):
        yield Problem(INVALID_INPUT, "", f'region "{gke.region}" is a zone: write {gke.region[:-2]}, and the zone in zones of a pool')
        return
    if not _REGION.fullmatch(gke.region):
        yield Problem(INVALID_INPUT, "", f'region "{gke.region}" is no region of Google Cloud, such as europe-west4')
        return
    for pool in cluster.spec.node_pools or ():
        at = f"pool {pool.name}"
        if not pool.zones:
            yield Problem(INVALID_INPUT, at, "at least one zone is required on GKE")
        for zone in pool.zones or ():
            if not _ZONE.fullmatch(zone) or zone[:-2] != gke.region:
                yield Problem(INVALID_INPUT, at, f'zone "{zone}" is not in region {gke.region}, whose zones are {gke.region}-a and so on')
        if len(set(pool.zones or ())) < len(pool.zones or ()):
            yield Problem(INVALID_INPUT, at, "a zone is named twice")


def _range_problems(settings: GkeSettings) -> Iterator[Problem]:
    ranges = [("gke.nodeCidr", settings.node_cidr), ("gke.podCidr", settings.pod_cidr), ("gke.serviceCidr", settings.service_cidr)]
    for at, (key, network) in enumerate(ranges):
        for other, beside in ranges[:at]:
            if network.overlaps(beside):
                yield Problem(INVALID_INPUT, "", f"settings {other} {beside} and {key} {network} overlap")


def _zone_warnings(inputs: GkeInputs, pool: CloudPool[GkeNodes]) -> Iterator[Problem]:
    """Warn of nodes beyond those that the scheduler counts on: GKE counts per zone."""
    start, most = nodes_of(inputs, pool)
    counts = counts_of(pool)
    if (start, most) != (counts.start, counts.most):
        zones = len(pool.pool.zones or ())
        text = f"GKE counts nodes per zone: {zones} zones start {start} nodes and have at most {most}; {counts.most} are counted"
        yield Problem("NodesPerZone", pool.title, text)
