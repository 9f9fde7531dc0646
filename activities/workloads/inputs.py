"""Gather the inputs of rendering: replica, cluster, Secret copies and tenant queue."""

from dataclasses import dataclass

from activities.cluster_objects.cluster_api import ClusterApi, ObjectId
from activities.render.inputs.facts import ClusterInput, ReplicaInput
from activities.render.inputs.settings import RenderSettings, workload_namespace
from activities.render.objects.queues import KUEUE, QUEUES, queue_name
from activities.render.objects.rendered import Rendered
from activities.render.replica import render_replica
from activities.render_errors import as_activity_errors
from activities.secrets.store import SecretReader
from activities.workloads.copies import Needed, needed_copies
from api_types.messages.cluster_work import ApplyReplica


@dataclass(frozen=True)
class Prepared:
    """The rendered objects of a replica, and the copies that it shares with others."""

    rendered: Rendered
    needed: Needed

    @property
    def warnings(self) -> list[str]:
        return [*self.rendered.warnings, *self.needed.warnings]


async def prepare(
    cluster: ClusterApi,
    store: SecretReader,
    order: ApplyReplica,
    settings: RenderSettings,
) -> Prepared:
    """Gather the inputs and render.

    Raises InvalidInput or Unsupported if the replica cannot be rendered, and
    CredentialsInvalid if a Secret is missing. The first detail of the error is the
    reason for the condition.
    """
    needed = await needed_copies(store, order, settings)
    with as_activity_errors():
        target = ClusterInput(
            order.cluster, order.facts, queues=await _queues(cluster, order, settings)
        )
        return Prepared(
            render_replica(_replica(order, needed), target, settings), needed
        )


def _replica(order: ApplyReplica, needed: Needed) -> ReplicaInput:
    return ReplicaInput(
        namespace=order.namespace,
        name=order.name,
        uid=order.uid,
        generation=order.generation,
        deployment=order.deployment,
        cluster=order.cluster,
        index=order.index,
        spec=order.spec,
        cache_claim=order.cache_claim,
        cache_gib=order.cache_gib,
        adapter_claims=order.adapter_claims,
        mounts=order.mounts,
        propagated=needed.rewrites,
        propagated_hash=needed.hash,
        picker_flags=order.picker_flags,
    )


async def _queues(
    cluster: ClusterApi, order: ApplyReplica, settings: RenderSettings
) -> frozenset[str] | None:
    """Return the name of the tenant's queue if it exists on the cluster.

    Pods that reference a missing queue wait without an error. Returns None where the
    scheduler has no queues.
    """
    if order.facts.scheduler_type not in QUEUES:
        return None
    wanted = QUEUES[order.facts.scheduler_type]
    served = sorted(
        kind for kind in await cluster.resources() if (kind.group, kind.kind) == wanted
    )
    namespace = (
        workload_namespace(order.namespace, settings)
        if order.facts.scheduler_type == KUEUE
        else ""
    )
    name = queue_name(order.namespace)
    return frozenset(
        {name}
        if served and await cluster.get(ObjectId(served[-1], namespace, name))
        else ()
    )
