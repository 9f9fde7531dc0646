"""All desired objects of a GKE cluster."""

import re
from collections.abc import Iterator, Mapping

from activities.clouds.desired.counts import count_warnings
from activities.clouds.desired.graph import CloudCall, DesiredObject, creation_order
from activities.clouds.desired.nodes import system_nodes
from activities.clouds.desired.owner import owner_of
from activities.clouds.desired.plan import (
    INVALID_INPUT,
    Desired,
    PlanProblem,
    refused_cluster,
)
from activities.clouds.desired.pools import CloudPool, cloud_pools
from activities.clouds.desired.storage_class import storage_class
from activities.clouds.desired.versions import version_problems, version_warnings
from activities.clouds.gke.wanted.cluster import (
    CLUSTER,
    cluster_object,
    counts_of,
    gpu_pool,
    nodes_of,
)
from activities.clouds.gke.wanted.foundation import API, VPC, foundation
from activities.clouds.gke.wanted.inputs import GkeFacts, GkeInputs
from activities.clouds.gke.wanted.maintenance import maintenance_problems
from api_types.resources.inference_class import GkeNodes, InferenceClass
from api_types.resources.inference_cluster import GkeCluster, InferenceCluster
from api_types.sections.clouds import GkeSettings

CONNECTION = "conn"
STORAGE_CLASS = "sc"
CACHE_CLASS = "modelplane-rwx"

# Families of machines with Arm processors. GKE keeps pods off their nodes that do not
# tolerate the architecture, and serving stack and engines do not.
_ARM = ("a4x-", "c4a-", "n4a-", "t2a-")
_GPUS_IN_NAME = re.compile(r"-(\d+)g\b")
_REGION = re.compile(r"[a-z]+-[a-z]+[0-9]+")
_ZONE = re.compile(r"[a-z]+-[a-z]+[0-9]+-[a-z]")
# Also project numbers, and projects of a domain, such as example.com:ml.
_PROJECT = re.compile(r"[a-z0-9][a-z0-9.:-]*")


def gke_objects(
    installation: str,
    cluster: InferenceCluster,
    classes: Mapping[str, InferenceClass],
    settings: GkeSettings,
    facts: GkeFacts,
) -> Desired:
    """Return the objects of a cluster with source GKE, and all problems.

    Raises ValueError for another source.
    """
    gke = cluster.spec.cluster.gke
    if gke is None:
        raise ValueError("the cluster has no block for GKE")
    pools, refused = cloud_pools(cluster, classes, "GKE", lambda block: block.gke)
    refused += [
        *version_problems(gke.kubernetes_version, minor_only=False),
        *_place_problems(gke, cluster),
        *_project_problems(gke),
        *_range_problems(settings),
        *(PlanProblem(INVALID_INPUT, "", text) for text in maintenance_problems(gke)),
    ]
    machines = {pool.title: text for pool in pools if (text := machine_problem(pool))}
    pools = [pool for pool in pools if pool.title not in machines]
    refused += [PlanProblem(INVALID_INPUT, at, text) for at, text in machines.items()]
    inputs = GkeInputs(
        owner_of(installation, cluster), gke, settings, gke.project or facts.project
    )
    warnings = [*version_warnings(gke.kubernetes_version)]
    if refused_cluster(refused):
        return Desired((), tuple(refused), tuple(warnings))
    for pool in pools:
        warnings += [
            *count_warnings(pool.pool, counts_of(pool)),
            *_zone_warnings(inputs, pool),
        ]
    return Desired(
        tuple(creation_order(_objects(inputs, pools))), tuple(refused), tuple(warnings)
    )


def machine_problem(pool: CloudPool[GkeNodes]) -> str:
    """Return the reason why a pool's machines cannot have its GPUs, or ""."""
    machine, gpus = pool.nodes.machine_type, pool.nodes.accelerator
    if machine.startswith(_ARM):
        return (
            f"machine type {machine} has Arm processors, which this release does not "
            "support on GKE; use a machine type with x86 processors"
        )
    named = _GPUS_IN_NAME.search(machine)
    if named and int(named[1]) != gpus.count:
        return (
            f"machine type {machine} has {named[1]} GPUs, and the class says "
            f"{gpus.count}; correct accelerator.count or machineType in the class"
        )
    return ""


def _objects(
    inputs: GkeInputs, pools: list[CloudPool[GkeNodes]]
) -> list[DesiredObject]:
    return [
        *foundation(inputs),
        cluster_object(inputs),
        *(gpu_pool(inputs, pool) for pool in pools),
        DesiredObject(
            CONNECTION,
            "Connection",
            inputs.owner.cluster,
            (CLUSTER,),
            (),
            "API server answers /readyz",
        ),
        system_nodes(CONNECTION),
        _storage_class(inputs),
    ]


def _storage_class(inputs: GkeInputs) -> DesiredObject:
    # Without the parameter `network` the driver uses the network `default`, and claims
    # stay pending.
    parameters = {"tier": "enterprise", "network": inputs.owner.base}
    manifest = storage_class(
        CACHE_CLASS, "filestore.csi.storage.gke.io", parameters, expandable=True
    )
    call = CloudCall("kubernetes", "apply", {"manifest": manifest})
    return DesiredObject(
        STORAGE_CLASS,
        "StorageClass",
        CACHE_CLASS,
        (CONNECTION, VPC, API),
        (call,),
        "stored",
    )


def project_problem(project: str) -> str:
    """Return why Google's clients would reject a project before any call, or ""."""
    if _PROJECT.fullmatch(project):
        return ""
    return f'project "{project}" is not the ID of a project of Google Cloud, such as acme-ml'


def _project_problems(gke: GkeCluster) -> Iterator[PlanProblem]:
    if gke.project and (text := project_problem(gke.project)):
        yield PlanProblem(INVALID_INPUT, "", text)


def _place_problems(
    gke: GkeCluster, cluster: InferenceCluster
) -> Iterator[PlanProblem]:
    if _ZONE.fullmatch(gke.region):
        yield PlanProblem(
            INVALID_INPUT,
            "",
            f'region "{gke.region}" is a zone: use {gke.region[:-2]}, and name the zone in '
            "zones of a pool",
        )
        return
    if not _REGION.fullmatch(gke.region):
        yield PlanProblem(
            INVALID_INPUT,
            "",
            f'region "{gke.region}" is not a region of Google Cloud, such as europe-west4',
        )
        return
    for pool in cluster.spec.node_pools or ():
        at = f"pool {pool.name}"
        if not pool.zones:
            yield PlanProblem(INVALID_INPUT, at, "at least one zone is required on GKE")
        for zone in pool.zones or ():
            if not _ZONE.fullmatch(zone) or zone[:-2] != gke.region:
                yield PlanProblem(
                    INVALID_INPUT,
                    at,
                    f'zone "{zone}" is not in region {gke.region}, whose zones are '
                    f"{gke.region}-a and so on",
                )
        if len(set(pool.zones or ())) < len(pool.zones or ()):
            yield PlanProblem(INVALID_INPUT, at, "a zone is named twice")


def _range_problems(settings: GkeSettings) -> Iterator[PlanProblem]:
    ranges = [
        ("gke.nodeCidr", settings.node_cidr),
        ("gke.podCidr", settings.pod_cidr),
        ("gke.serviceCidr", settings.service_cidr),
    ]
    for at, (key, network) in enumerate(ranges):
        for other, beside in ranges[:at]:
            if network.overlaps(beside):
                yield PlanProblem(
                    INVALID_INPUT,
                    "",
                    f"settings {other} {beside} and {key} {network} overlap",
                )


def _zone_warnings(
    inputs: GkeInputs, pool: CloudPool[GkeNodes]
) -> Iterator[PlanProblem]:
    """Warn if GKE, which counts nodes per zone, has other counts than the scheduler."""
    start, most = nodes_of(inputs, pool)
    counts = counts_of(pool)
    if (start, most) != (counts.start, counts.most):
        zones = len(pool.pool.zones or ())
        text = (
            f"GKE counts nodes per zone: {zones} zones start {start} nodes and have at most "
            f"{most}; the scheduler counts {counts.most}"
        )
        yield PlanProblem("NodesPerZone", pool.title, text)
