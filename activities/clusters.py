"""Get to know a cluster, and keep watching it."""

import asyncio
from collections.abc import Mapping

from temporalio import activity

from activities import kinds
from activities.cluster_api import ClusterApi, ClusterPool, Kind, ObjectId, Resource
from activities.observe.gateway import observe_gateway
from api_types import labels
from api_types.errors import PermissionDenied
from api_types.messages import ClusterFacts, Connect

_ACCESS_REVIEW = Kind("authorization.k8s.io/v1", "SelfSubjectAccessReview")
_WRITE = ("list", "watch", "patch", "delete")
_READ = ("list", "watch")
_DENIED_SHOWN_MAX = 10


class ClusterActivities:
    """What an InferenceCluster does on its cluster."""

    def __init__(self, clusters: ClusterPool) -> None:
        self._clusters = clusters

    @activity.defn
    async def connect_cluster(self, order: Connect) -> ClusterFacts:
        """Reach the cluster, check that our rights suffice, and find out what it serves.

        Raises CredentialsInvalid, PermissionDenied or ClusterUnreachable, each with what to do about it.
        """
        cluster = await self._clusters.at(order.connection)
        version = await cluster.version()
        served = await cluster.resources(refresh=True)
        await _check_rights(cluster, order.connection.cluster, served)
        gateway = observe_gateway(await cluster.get(ObjectId(kinds.GATEWAY, labels.SYSTEM_NAMESPACE, labels.GATEWAY_NAME)))
        return ClusterFacts(
            kubernetes_version=version.removeprefix("v"),
            dra_version=kinds.dra_version(served),
            gateway_address=gateway.address,
            gateway_message=gateway.message,
            apis=sorted({kind.api_version for kind in served}),
        )


async def _check_rights(cluster: ClusterApi, name: str, served: Mapping[Kind, Resource]) -> None:
    """Ask for everything at once, as an administrator has it; only if that is refused, right by right. Raises PermissionDenied."""
    if await _may(cluster, "*", "*", "*"):
        return
    wanted = [(verb, served[kind]) for kind in kinds.ours(served) for verb in _WRITE]
    wanted += [(verb, served[kind]) for kind in kinds.only_watched(served) for verb in _READ]
    wanted += [(verb, served[kinds.NAMESPACE]) for verb in ("get", "create")]
    answers = await asyncio.gather(*(_may(cluster, verb, resource.kind.group, resource.plural) for verb, resource in wanted))
    denied = [
        f"{verb} {resource.plural}{'.' if resource.kind.group else ''}{resource.kind.group}"
        for (verb, resource), allowed in zip(wanted, answers, strict=True)
        if not allowed
    ]
    if denied:
        more = f" and {len(denied) - _DENIED_SHOWN_MAX} more" if len(denied) > _DENIED_SHOWN_MAX else ""
        raise PermissionDenied(
            f"cluster {name}: the user of the kubeconfig may not: {', '.join(denied[:_DENIED_SHOWN_MAX])}{more} (in all namespaces); "
            f"bind it to a ClusterRole that allows them, such as cluster-admin"
        )


async def _may(cluster: ClusterApi, verb: str, group: str, resource: str) -> bool:
    attributes = {"verb": verb, "group": group, "resource": resource}
    review = {"apiVersion": _ACCESS_REVIEW.api_version, "kind": _ACCESS_REVIEW.kind, "spec": {"resourceAttributes": attributes}}
    answer = await cluster.create(review)
    return bool(answer and (answer.get("status") or {}).get("allowed"))
