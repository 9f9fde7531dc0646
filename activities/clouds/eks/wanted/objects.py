"""All desired objects of an EKS cluster."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from activities.clouds.desired.graph import DesiredObject, creation_order
from activities.clouds.desired.nodes import system_nodes
from activities.clouds.desired.owner import owner_of, pool_name
from activities.clouds.desired.plan import (
    INVALID_INPUT,
    Desired,
    PlanProblem,
    refused_cluster,
)
from activities.clouds.desired.pools import CloudPool, cloud_pools
from activities.clouds.desired.versions import version_problems, version_warnings
from activities.clouds.eks.wanted.checks import (
    machine_problems,
    place_problems,
    pool_warnings,
    reservation_problems,
)
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
from activities.clouds.eks.wanted.node_groups import (
    SYSTEM_KEY,
    gpu_group,
    has_efa,
    system_group,
)
from activities.clouds.eks.wanted.storage import cache_class, storage
from activities.clouds.eks.wanted.subnets import (
    SubnetPair,
    range_problems,
    subnet_pairs,
)
from activities.clouds.eks.wanted.zones import (
    PoolPlacement,
    chosen_zones,
    excluded_problems,
    zone_count_problem,
)
from api_types.resources.inference_class import EksNodes, InferenceClass
from api_types.resources.inference_cluster import InferenceCluster
from api_types.sections.clouds import EksSettings


def eks_objects(
    installation: str,
    cluster: InferenceCluster,
    classes: Mapping[str, InferenceClass],
    settings: EksSettings,
    facts: EksFacts,
) -> Desired:
    """Return the objects of a cluster with source EKS, and all problems.

    Raises ValueError for another source.
    """
    eks = cluster.spec.cluster.eks
    if eks is None:
        raise ValueError("the cluster has no block for EKS")
    pools, refused = cloud_pools(cluster, classes, "EKS", lambda block: block.eks)
    refused += [
        *version_problems(eks.kubernetes_version, minor_only=True),
        *place_problems(eks, cluster, facts.zones),
    ]
    refused += _excluded(cluster, settings, facts)
    placements = _placements(cluster, classes)
    zones = chosen_zones(eks.region, settings, placements, facts)
    ranges = list(range_problems(settings.vpc_cidr, settings.subnet_cidrs))
    too_many = zone_count_problem(zones, facts)
    pairs: list[SubnetPair] | None = []
    texts = [*ranges, too_many] if too_many else ranges
    if not texts:
        pairs = subnet_pairs(
            settings.vpc_cidr, settings.subnet_cidrs, zones, facts.subnets
        )
        if pairs is None:
            no_room = (
                f"setting eks.vpcCidr {settings.vpc_cidr} has no room for the private "
                f"subnets of {len(zones)} zones"
            )
            texts = [no_room]
    refused += [PlanProblem(INVALID_INPUT, "", text) for text in texts]
    inputs = EksInputs(
        owner_of(installation, cluster),
        eks,
        settings,
        facts,
        pairs or (),
        frozenset(_named(cluster)),
    )
    for pool in pools:
        refused += reservation_problems(inputs, pool)
        refused += machine_problems(inputs, pool)
    warnings = [*version_warnings(eks.kubernetes_version)]
    if refused_cluster(refused):
        return Desired((), tuple(refused), tuple(warnings))
    warnings += _assumed_zones(cluster, facts, zones)
    for pool in pools:
        warnings += pool_warnings(inputs, pool)
    return Desired(
        tuple(creation_order(_objects(inputs, pools))), tuple(refused), tuple(warnings)
    )


def _objects(
    inputs: EksInputs, pools: Sequence[CloudPool[EksNodes]]
) -> list[DesiredObject]:
    efa = any(has_efa(pool) for pool in pools)
    groups = list[DesiredObject]()
    for pool in pools:
        groups += gpu_group(inputs, pool)
    efa_groups = [efa_group(inputs)] if efa else []
    efa_drivers = [efa_driver()] if efa else []
    return [
        *network(inputs),
        *identities(inputs),
        control_plane(inputs),
        access(inputs),
        efs_group(inputs),
        *efa_groups,
        *storage(inputs),
        *first_add_ons(inputs),
        *pod_identities(inputs, CLUSTER),
        system_group(inputs),
        *groups,
        *later_add_ons(inputs, SYSTEM_KEY),
        connection(inputs),
        system_nodes(CONNECTION, SYSTEM_KEY),
        autoscaler(inputs, SYSTEM_KEY),
        *efa_drivers,
        cache_class(),
    ]


def _named(cluster: InferenceCluster) -> list[str]:
    zones = [pool.zones or () for pool in cluster.spec.node_pools or ()]
    return list(dict.fromkeys(chain.from_iterable(zones)))


def _placements(
    cluster: InferenceCluster, classes: Mapping[str, InferenceClass]
) -> list[PoolPlacement]:
    """Return the machine types and zones of pools.

    A pool without a class counts as well: the zones that it names get subnets.
    """
    found = list[PoolPlacement]()
    for pool in cluster.spec.node_pools or ():
        known = classes.get(pool.class_name)
        provisioning = known.spec.provisioning if known else None
        nodes = provisioning.eks if provisioning else None
        if nodes is not None or pool.zones:
            machine = nodes.instance_type if nodes else ""
            found.append(PoolPlacement(machine, pool.zones or ()))
    return found


def _excluded(
    cluster: InferenceCluster, settings: EksSettings, facts: EksFacts
) -> Iterator[PlanProblem]:
    for pool in cluster.spec.node_pools or ():
        if pool_name(pool.name) not in facts.group_zones:
            for text in excluded_problems(settings, pool.zones or (), facts):
                yield PlanProblem(INVALID_INPUT, f"pool {pool.name}", text)


def _assumed_zones(
    cluster: InferenceCluster, facts: EksFacts, zones: Sequence[str]
) -> Iterator[PlanProblem]:
    """Warn of assumed zones, which neither the account nor a pool has named."""
    known = {*_named(cluster), *facts.zones, *(pair.zone for pair in facts.subnets)}
    if assumed := [zone for zone in zones if zone not in known]:
        text = (
            "the zones of the account are read when the cluster is created; "
            f"{', '.join(assumed)} assumed for further subnets"
        )
        yield PlanProblem("ZonesAssumed", "", text)
