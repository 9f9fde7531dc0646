"""The rights that a kubeconfig must give: what is used on a cluster, and which of it is denied.

RBAC never lets anybody grant a right that he lacks, so the user of a kubeconfig also needs what the endpoint pickers may do there.
`deploy/inference-cluster/rbac.yaml` has the same rights as roles.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from activities.cluster_objects import kinds
from activities.cluster_objects.access_review import Right, denied_of, is_administrator, shown
from activities.cluster_objects.cluster_api import ClusterApi, Json, Kind, Resource
from activities.clusters.capacity.adapters import ADAPTERS
from activities.render.objects.queues import QUEUES
from activities.render.objects.teardown import ENGINES, step_of_number
from activities.render.routing.picker import METRICS_RULES, role_rules
from api_types.errors import PermissionDenied
from api_types.pins import apiversions

ROLES_FILE = "deploy/inference-cluster/rbac.yaml"
_RBAC_GROUP = apiversions.RBAC.partition("/")[0]
_FOLLOW = ("list", "watch")
# Server-side apply is `patch`, and `create` too where the object is new.
_OWN = ("get", *_FOLLOW, "create", "patch", "delete")
# Copies are written by whole, so that no one else's change is lost. A Job cannot change; one that differs is a new one.
_OTHER_VERBS = {
    kinds.SECRET: (*_OWN, "update"),
    Kind(apiversions.CORE, "ConfigMap"): (*_OWN, "update"),
    kinds.JOB: tuple(verb for verb in _OWN if verb != "patch"),
}
_OF_METRICS = frozenset({Kind(apiversions.RBAC, "ClusterRole"), Kind(apiversions.RBAC, "ClusterRoleBinding")})


@dataclass(frozen=True)
class Usage:
    """What not every cluster is used for: its capacity adapter and scheduler, and what settings of the worker turn on.

    `metrics_auth` is `epp.metricsAuth`, `force_delete` whether `teardown.forceAfter` is set, `picker_replicas` is `epp.replicas`.
    """

    capacity_adapter: str = "none"
    scheduler_type: str = "none"
    metrics_auth: bool = False
    force_delete: bool = False
    picker_replicas: int = 1


async def check_permissions(cluster: ClusterApi, name: str, served: Mapping[Kind, Resource], usage: Usage) -> None:
    """Review all rights at once, as an administrator has them; if that is denied, one by one. Raises PermissionDenied."""
    if await is_administrator(cluster):
        return
    denied = await denied_of(cluster, needed_rights(served, usage))
    granted = await denied_of(cluster, granted_rights(served, usage))
    # Whoever may escalate grants what he does not have.
    if granted and await denied_of(cluster, _escalation(usage)):
        denied += [right for right in granted if right not in denied]
    if denied:
        raise PermissionDenied(
            f"cluster {name}: the user of the kubeconfig lacks permissions, in all namespaces: {shown(denied)}; "
            f"bind it to the ClusterRole of {ROLES_FILE}, or to cluster-admin"
        )


def needed_rights(served: Mapping[Kind, Resource], usage: Usage) -> list[Right]:
    """Give what is used itself, of the kinds that the cluster serves."""
    return list(
        dict.fromkeys(
            Right(verb, served[kind].plural, kind.group) for kind, verbs in _verbs(served, usage) if kind in served for verb in verbs
        )
    )


def granted_rights(served: Mapping[Kind, Resource], usage: Usage) -> list[Right]:
    """Give what the endpoint pickers on the cluster are granted."""
    if kinds.INFERENCE_POOL not in served:
        return []
    rules = [*role_rules(usage.picker_replicas), *(METRICS_RULES if usage.metrics_auth else ())]
    return list(dict.fromkeys(right for rule in rules for right in rights_of(rule)))


def _escalation(usage: Usage) -> list[Right]:
    roles = ("roles", "clusterroles") if usage.metrics_auth else ("roles",)
    return [Right(verb, each, _RBAC_GROUP) for each in roles for verb in ("escalate", "bind")]


def rights_of(rule: Json) -> Iterator[Right]:
    """Give the rights of one rule of a role."""
    for verb in rule["verbs"]:
        for path in rule.get("nonResourceURLs", ()):
            yield Right(verb, path)
        for group in rule.get("apiGroups", ()):
            for resource in rule["resources"]:
                yield Right(verb, resource, group)


def _verbs(served: Mapping[Kind, Resource], usage: Usage) -> Iterator[tuple[Kind, Sequence[str]]]:
    for kind in (*kinds.replica_kinds(served), *kinds.cache_kinds(served)):
        yield kind, _FOLLOW if kind in _OF_METRICS and not usage.metrics_auth else _OTHER_VERBS.get(kind, _OWN)
    for kind in kinds.watched_kinds(served):
        yield kind, _FOLLOW
    for kind in kinds.resolve_all(step_of_number(ENGINES).wait_kinds, served):
        yield kind, ("list",)
    yield kinds.GATEWAY, ("get",)
    yield kinds.NAMESPACE, ("get", "create")
    yield kinds.STORAGE_CLASS, ("get", *_FOLLOW)
    if usage.force_delete:
        yield kinds.POD, ("delete",)
    adapter = ADAPTERS.get(usage.capacity_adapter)
    for kind in kinds.resolve_all([(version, name) for version, name, _ in adapter.kinds] if adapter else (), served):
        yield kind, _FOLLOW
    queue = QUEUES.get(usage.scheduler_type)
    for kind in served:
        if (kind.group, kind.kind) == queue:
            yield kind, ("get",)
