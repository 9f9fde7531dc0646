"""Engine pods on clusters with a queueing scheduler (KAI, Kueue).

This covers queues, pod groups, and the check that the tenant's queue exists. The
endpoint picker is never queued: it must not wait for GPUs.
"""

from activities.render.engines.context import Context
from activities.render.engines.options.topology import pod_group_constraint
from activities.render.engines.pods import member_path, override
from activities.render.engines.spec import EngineSpec, MemberSpec
from activities.render.objects import components, inventory_keys
from activities.render.objects.manifest import (
    Json,
    RenderedObject,
    compact,
    labelled_item,
)
from activities.render.objects.queues import (
    KAI,
    KAI_QUEUE,
    KAI_SCHEDULER,
    KUEUE,
    KUEUE_QUEUE,
    queue_name,
)
from api_types.pins import apiversions

EXPLICIT = "explicit"
_KAI_POD_GROUP = "pod-group-name"
_KAI_SKIP_GROUPER = "kai.scheduler/skip-podgrouper"


def check_queue(context: Context) -> None:
    """Warn about a missing tenant queue, and report conflicts with explicit groups.

    Without the queue, pods would wait without an event.
    """
    cluster = context.cluster
    if context.facts.scheduler_type not in (KAI, KUEUE):
        return
    queue = queue_name(context.replica.namespace)
    if cluster.queues is not None and queue not in cluster.queues:
        context.findings.warn(
            f"cluster {cluster.name}",
            f"QueueMissing: queue {queue!r} does not exist, pods wait until it exists",
        )
    if not _explicit(context):
        return
    for engine in context.spec.engines:
        if engine.copies > 1:
            context.findings.problem(
                f"engine {engine.name}",
                f"copies is {engine.copies}: explicit KAI pod groups allow one copy, "
                "because a template cannot name a group per copy",
            )


def queue_pod(
    context: Context, engine: EngineSpec, member: MemberSpec, template: Json
) -> Json:
    """Return an engine's pod template with the fields for the cluster's scheduler."""
    if context.facts.scheduler_type != KAI:
        return template
    where = member_path(engine, member)
    metadata = dict(template.get("metadata", {}))
    metadata["labels"] = override(
        context,
        where,
        metadata.get("labels", {}),
        {KAI_QUEUE: queue_name(context.replica.namespace)},
    )
    if _explicit(context):
        managed = {_KAI_POD_GROUP: context.engine_name(engine)}
        metadata["annotations"] = override(
            context, where, metadata.get("annotations", {}), managed
        )
    priority = context.settings.scheduler_priority_class or None
    return {
        **template,
        "metadata": metadata,
        "spec": {
            **template["spec"],
            **compact(schedulerName=KAI_SCHEDULER, priorityClassName=priority),
        },
    }


def workload_labels(context: Context) -> dict[str, str]:
    """Return the labels of the workload itself."""
    return (
        {KUEUE_QUEUE: queue_name(context.replica.namespace)}
        if context.facts.scheduler_type == KUEUE
        else {}
    )


def workload_annotations(context: Context) -> dict[str, str]:
    """Return the annotations of the workload itself."""
    return {_KAI_SKIP_GROUPER: "true"} if _explicit(context) else {}


def pod_groups(context: Context) -> list[RenderedObject]:
    """Return one PodGroup per engine in explicit KAI mode.

    Prefill and decode start independently, so they are two groups.
    """
    if not _explicit(context):
        return []
    return [_pod_group(context, engine) for engine in context.spec.engines]


def _explicit(context: Context) -> bool:
    return context.facts.scheduler_type == KAI and context.settings.kai_mode == EXPLICIT


def _pod_group(context: Context, engine: EngineSpec) -> RenderedObject:
    manifest = {
        "apiVersion": apiversions.KAI_POD_GROUP,
        "kind": "PodGroup",
        "metadata": context.metadata(context.engine_name(engine)),
        "spec": compact(
            minMember=engine.size,
            queue=queue_name(context.replica.namespace),
            priorityClassName=context.settings.scheduler_priority_class or None,
            topologyConstraint=pod_group_constraint(engine),
        ),
    }
    return labelled_item(
        context.owner,
        f"{inventory_keys.POD_GROUP_PREFIX}{engine.name}",
        components.POD_GROUP,
        manifest,
        engine=engine.name,
    )
