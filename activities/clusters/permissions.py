"""The permissions that a kubeconfig must have, and a check of the missing ones.

RBAC does not allow granting a permission that the user lacks, so the user of a
kubeconfig also needs the permissions of the endpoint pickers.
`deploy/inference-cluster/rbac.yaml` has the same permissions as roles.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product

from activities.cluster_objects import kinds
from activities.cluster_objects.access_review import (
    ResourceRight,
    denied_of,
    is_administrator,
    shown,
)
from activities.cluster_objects.cluster_api import (
    ApiResource,
    ClusterApi,
    GroupVersionKind,
    Json,
)
from activities.clusters.capacity.adapters import ADAPTERS
from activities.render.objects.queues import QUEUES
from activities.render.objects.teardown import ENGINES, step_of_number
from activities.render.routing.picker import METRICS_RULES, role_rules
from api_types.errors import PermissionDenied
from api_types.pins import apiversions

ROLES_FILE = "deploy/inference-cluster/rbac.yaml"
_RBAC_GROUP = apiversions.RBAC.partition("/")[0]
_FOLLOW = ("list", "watch")
# Server-side apply needs `patch`, and also `create` for a new object.
_OWN = ("get", *_FOLLOW, "create", "patch", "delete")
# Copies are replaced as a whole, so that no concurrent change is lost. A Job is
# immutable, so a changed Job is created again.
_OTHER_VERBS = {
    kinds.SECRET: (*_OWN, "update"),
    GroupVersionKind(apiversions.CORE, "ConfigMap"): (*_OWN, "update"),
    kinds.JOB: tuple(verb for verb in _OWN if verb != "patch"),
}
_OF_METRICS = frozenset(
    {
        GroupVersionKind(apiversions.RBAC, "ClusterRole"),
        GroupVersionKind(apiversions.RBAC, "ClusterRoleBinding"),
    }
)


@dataclass(frozen=True)
class Usage:
    """Features that only some clusters use, because of annotations or settings.

    `metrics_auth` is `epp.metricsAuth`, and `force_delete` is True if
    `teardown.forceAfter` is set.
    """

    capacity_adapter: str = "none"
    scheduler_type: str = "none"
    metrics_auth: bool = False
    force_delete: bool = False


async def check_permissions(
    cluster: ClusterApi,
    name: str,
    served: Mapping[GroupVersionKind, ApiResource],
    usage: Usage,
) -> None:
    """Raise PermissionDenied with the missing permissions.

    An administrator's permissions are checked with one review. All others are checked
    one by one.
    """
    if await is_administrator(cluster):
        return
    denied = await denied_of(cluster, needed_rights(served, usage))
    granted = await denied_of(cluster, granted_rights(served, usage))
    # A user with `escalate` and `bind` may grant permissions that they lack.
    if granted and await denied_of(cluster, _escalation(usage)):
        denied += [right for right in granted if right not in denied]
    if denied:
        raise PermissionDenied(
            f"cluster {name}: the user of the kubeconfig lacks permissions, in all "
            f"namespaces: {shown(denied)}; bind the user to the ClusterRole of "
            f"{ROLES_FILE}, or to cluster-admin"
        )


def needed_rights(
    served: Mapping[GroupVersionKind, ApiResource], usage: Usage
) -> list[ResourceRight]:
    """Return the permissions that Modelplane uses itself, for the served kinds."""
    rights: dict[ResourceRight, None] = {}
    for kind, verbs in _verbs(served, usage):
        if kind in served:
            plural = served[kind].plural
            rights.update(
                dict.fromkeys(ResourceRight(verb, plural, kind.group) for verb in verbs)
            )
    return list(rights)


def granted_rights(
    served: Mapping[GroupVersionKind, ApiResource], usage: Usage
) -> list[ResourceRight]:
    """Return the permissions that the endpoint pickers on the cluster get."""
    if kinds.INFERENCE_POOL not in served:
        return []
    rules = [*role_rules()]
    if usage.metrics_auth:
        rules += METRICS_RULES
    return list(dict.fromkeys(chain.from_iterable(map(rights_of, rules))))


def _escalation(usage: Usage) -> list[ResourceRight]:
    roles = ("roles", "clusterroles") if usage.metrics_auth else ("roles",)
    return [
        ResourceRight(verb, role, _RBAC_GROUP)
        for role, verb in product(roles, ("escalate", "bind"))
    ]


def rights_of(rule: Json) -> Iterator[ResourceRight]:
    """Yield the permissions of one rule of a role."""
    for verb in rule["verbs"]:
        for path in rule.get("nonResourceURLs", ()):
            yield ResourceRight(verb, path)
        for group in rule.get("apiGroups", ()):
            for resource in rule["resources"]:
                yield ResourceRight(verb, resource, group)


def _verbs(
    served: Mapping[GroupVersionKind, ApiResource], usage: Usage
) -> Iterator[tuple[GroupVersionKind, Sequence[str]]]:
    for kind in (*kinds.replica_kinds(served), *kinds.cache_kinds(served)):
        verbs = _OTHER_VERBS.get(kind, _OWN)
        if kind in _OF_METRICS and not usage.metrics_auth:
            verbs = _FOLLOW
        yield kind, verbs
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
    read = [pair[:2] for pair in adapter.kinds] if adapter else []
    for kind in kinds.resolve_all(read, served):
        yield kind, _FOLLOW
    queue = QUEUES.get(usage.scheduler_type)
    for kind in served:
        if (kind.group, kind.kind) == queue:
            yield kind, ("get",)
