"""All objects of an EKS cluster."""

from collections.abc import Iterator, Mapping, Sequence

from activities.clouds.desired import INVALID_INPUT, Desired, Problem, refused_cluster
from activities.clouds.eks.wanted.checks import place_problems, pool_warnings, reservation_problems
from activities.clouds.eks.wanted.control_plane import (
    CLUSTER,
    CONNECTION,
    access,
    autoscaler,
    connection,
    control_plane,
    efa_driver,
    first_add_ons,
    later_add_ons,
)
from activities.clouds.eks.wanted.identities import identities, pod_identities
from activities.clouds.eks.wanted.inputs import EksFacts, EksInputs
from activities.clouds.eks.wanted.network import efa_group, efs_group, network
from activities.clouds.eks.wanted.node_groups import SYSTEM_KEY, gpu_group, has_efa, system_group
from activities.clouds.eks.wanted.storage import cache_class, storage
from activities.clouds.eks.wanted.subnets import range_problems, subnet_pairs, zone_count_problem, zones_for
from activities.clouds.graph import DesiredObject, creation_order
from activities.clouds.nodes import system_nodes
from activities.clouds.owner import owner_of
from activities.clouds.pools import CloudPool, cloud_pools
from activities.clouds.versions import version_problems, version_warnings
from api_types.resources.inference_class import EksNodes, InferenceClass
from api_types.resources.inference_cluster import EksCluster, InferenceCluster
from api_types.sections.clouds import EksSettings


def eks_objects(
    installation: str, cluster: InferenceCluster, classes: Mapping[str, InferenceClass], settings: EksSettings, facts: EksFacts
) -> Desired:
    """Give the objects of a cluster with source EKS, and what of it cannot be created. Raises ValueError for another source."""
    eks = cluster.spec.cluster.eks
    if eks is None:
        raise ValueError("the cluster has no block for EKS")
    pools, refused = cloud_pools(cluster, classes, "EKS", lambda block: block.eks)
    refused += [*version_problems(eks.kubernetes_version, minor_only=True), *place_problems(eks, cluster, facts.zones)]
    zones = _zones(eks, cluster, settings, facts)
    ranges = list(range_problems(settings.vpc_cidr, settings.subnet_cidrs))
    too_many = zone_count_problem(zones)
    pairs = None if ranges or too_many else subnet_pairs(settings.vpc_cidr, settings.subnet_cidrs, zones, facts.subnets)
    no_room = f"setting eks.vpcCidr {settings.vpc_cidr} has no room for the private subnets of {len(zones)} zones"
    texts = [*ranges, *([too_many] if too_many else []), *([no_room] if pairs is None and not ranges and not too_many else [])]
    refused += [Problem(INVALID_INPUT, "", text) for text in texts]
    inputs = EksInputs(owner_of(installation, cluster), eks, settings, facts, pairs or ())
    refused += [problem for pool in pools for problem in reservation_problems(inputs, pool)]
    warnings = [*version_warnings(eks.kubernetes_version)]
    if refused_cluster(refused):
        return Desired((), tuple(refused), tuple(warnings))
    warnings += _assumed_zones(cluster, facts, zones)
    for pool in pools:
        warnings += pool_warnings(inputs, pool)
    return Desired(tuple(creation_order(_objects(inputs, pools))), tuple(refused), tuple(warnings))


def _objects(inputs: EksInputs, pools: Sequence[CloudPool[EksNodes]]) -> list[DesiredObject]:
    efa = any(has_efa(pool) for pool in pools)
    return [
        *network(inputs),
        *identities(inputs),
        control_plane(inputs),
        access(inputs),
        efs_group(inputs),
        *([efa_group(inputs)] if efa else []),
        *storage(inputs),
        *first_add_ons(inputs),
        *pod_identities(inputs, CLUSTER),
        system_group(inputs),
        *(each for pool in pools for each in gpu_group(inputs, pool)),
        *later_add_ons(inputs, SYSTEM_KEY),
        connection(inputs),
        system_nodes(CONNECTION, SYSTEM_KEY),
        autoscaler(inputs, SYSTEM_KEY),
        *([efa_driver()] if efa else []),
        cache_class(),
    ]


def _named(cluster: InferenceCluster) -> list[str]:
    return list(dict.fromkeys(zone for pool in cluster.spec.node_pools or () for zone in pool.zones or ()))


def _zones(eks: EksCluster, cluster: InferenceCluster, settings: EksSettings, facts: EksFacts) -> list[str]:
    return zones_for(eks.region, facts.zones, _named(cluster), facts.subnets, len(settings.subnet_cidrs))


def _assumed_zones(cluster: InferenceCluster, facts: EksFacts, zones: Sequence[str]) -> Iterator[Problem]:
    """Warn of zones that neither the account nor a pool has named."""
    known = {*_named(cluster), *facts.zones, *(pair.zone for pair in facts.subnets)}
    if assumed := [zone for zone in zones if zone not in known]:
        text = f"which zones the account can use is asked when the cluster is created; {', '.join(assumed)} assumed for further subnets"
        yield Problem("ZonesAssumed", "", text)
