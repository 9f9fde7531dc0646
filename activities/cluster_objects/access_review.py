"""Read from an API server which permissions the user of a kubeconfig has."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from activities.cluster_objects.cluster_api import ClusterApi, GroupVersionKind, Json

_ACCESS_REVIEW = GroupVersionKind("authorization.k8s.io/v1", "SelfSubjectAccessReview")
_SHOWN_MAX = 10
_EVERYTHING = {"verb": "*", "group": "*", "resource": "*"}


class ResourceRight(NamedTuple):
    """One verb on one resource in all namespaces, or on a path such as `/metrics`."""

    verb: str
    resource: str
    group: str = ""

    @property
    def is_path(self) -> bool:
        return self.resource.startswith("/")

    @property
    def target(self) -> str:
        """Return the resource in the syntax of `kubectl auth can-i`."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


async def is_administrator(cluster: ClusterApi) -> bool:
    return await _is_allowed(cluster, {"resourceAttributes": _EVERYTHING})


async def denied_of(
    cluster: ClusterApi, rights: Sequence[ResourceRight]
) -> list[ResourceRight]:
    """Return the permissions that the user lacks."""
    answers = await asyncio.gather(
        *(_is_allowed(cluster, _attributes(right)) for right in rights)
    )
    return [
        right for right, allowed in zip(rights, answers, strict=True) if not allowed
    ]


def shown(denied: Iterable[ResourceRight]) -> str:
    """Return the permissions as text, grouped by resource.

    At most ten resources are listed.
    """
    verbs: dict[str, list[str]] = defaultdict(list)
    for right in denied:
        verbs[right.target].append(right.verb)
    texts = [f"{','.join(found)} {target}" for target, found in verbs.items()]
    more = (
        f"; and on {len(texts) - _SHOWN_MAX} more resources"
        if len(texts) > _SHOWN_MAX
        else ""
    )
    return "; ".join(texts[:_SHOWN_MAX]) + more


def _attributes(right: ResourceRight) -> Json:
    if right.is_path:
        return {"nonResourceAttributes": {"verb": right.verb, "path": right.resource}}
    return {
        "resourceAttributes": {
            "verb": right.verb,
            "group": right.group,
            "resource": right.resource,
        }
    }


async def _is_allowed(cluster: ClusterApi, attributes: Json) -> bool:
    answer = await cluster.create(
        {
            "apiVersion": _ACCESS_REVIEW.api_version,
            "kind": _ACCESS_REVIEW.kind,
            "spec": attributes,
        }
    )
    return bool(answer and (answer.get("status") or {}).get("allowed"))
