"""Which rights the user of a kubeconfig has, as the API server says itself."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from activities.cluster_objects.cluster_api import ClusterApi, Json, Kind

_ACCESS_REVIEW = Kind("authorization.k8s.io/v1", "SelfSubjectAccessReview")
_SHOWN_MAX = 10
_EVERYTHING = {"verb": "*", "group": "*", "resource": "*"}


class Right(NamedTuple):
    """One verb on one resource, or on a path that is no resource, in all namespaces."""

    verb: str
    resource: str
    group: str = ""

    @property
    def is_path(self) -> bool:
        """Whether it is on a path, such as `/metrics`."""
        return self.resource.startswith("/")

    @property
    def target(self) -> str:
        """Name the resource as `kubectl auth can-i` takes it."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


async def is_administrator(cluster: ClusterApi) -> bool:
    """Tell whether the user may do everything."""
    return await _is_allowed(cluster, {"resourceAttributes": _EVERYTHING})


async def denied_of(cluster: ClusterApi, rights: Sequence[Right]) -> list[Right]:
    """Give those rights that the user lacks."""
    answers = await asyncio.gather(*(_is_allowed(cluster, _attributes(right)) for right in rights))
    return [right for right, allowed in zip(rights, answers, strict=True) if not allowed]


def shown(denied: Iterable[Right]) -> str:
    """Name rights by resource, the first of many."""
    verbs: dict[str, list[str]] = defaultdict(list)
    for right in denied:
        verbs[right.target].append(right.verb)
    texts = [f"{','.join(found)} {target}" for target, found in verbs.items()]
    more = f"; and on {len(texts) - _SHOWN_MAX} more resources" if len(texts) > _SHOWN_MAX else ""
    return "; ".join(texts[:_SHOWN_MAX]) + more


def _attributes(right: Right) -> Json:
    if right.is_path:
        return {"nonResourceAttributes": {"verb": right.verb, "path": right.resource}}
    return {"resourceAttributes": {"verb": right.verb, "group": right.group, "resource": right.resource}}


async def _is_allowed(cluster: ClusterApi, attributes: Json) -> bool:
    answer = await cluster.create({"apiVersion": _ACCESS_REVIEW.api_version, "kind": _ACCESS_REVIEW.kind, "spec": attributes})
    return bool(answer and (answer.get("status") or {}).get("allowed"))
