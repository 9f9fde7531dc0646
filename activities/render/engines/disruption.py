"""Stopping pods: how an engine shuts down, and how many copies evictions must leave.

A deleted pod and its endpoint are two objects: gateways observe a deletion seconds
after the pod. So a serving pod continues to accept requests for a while
(`preStopSeconds`). Its open requests finish in the rest of its grace period.
"""

from activities.render.engines.context import Context
from activities.render.engines.spec import DrainSpec, EngineSpec, MemberSpec
from activities.render.inputs.reader import Reader
from activities.render.objects import components, contract, inventory_keys
from activities.render.objects.manifest import (
    Json,
    RenderedObject,
    compact,
    labelled_item,
)
from api_types import labels
from api_types.pins import apiversions
from api_types.resources.parts.disruption import (
    GRACE_SECONDS_MAX,
    PRE_STOP_SECONDS_MAX,
    copies_kept,
)

# From this release on, kubelets can sleep themselves. In earlier releases a hook runs a
# program of the image, which engine images may lack.
SLEEP_SINCE = (1, 30)
# From this release on, a budget states whether pods that are not ready count.
_EVICTION_POLICY_SINCE = (1, 27)


def read_drain(engine: Reader) -> DrainSpec:
    """Read how an engine is stopped."""
    reader = engine.object("drain")
    drain = DrainSpec(
        pre_stop_seconds=reader.integer("preStopSeconds", 0, 0, PRE_STOP_SECONDS_MAX),
        grace_seconds=reader.integer("graceSeconds", 0, 1, GRACE_SECONDS_MAX),
    )
    if drain.grace_seconds and drain.grace_seconds <= drain.pre_stop_seconds:
        reader.findings.problem(
            reader.where,
            f"graceSeconds must be more than preStopSeconds ({drain.pre_stop_seconds}), "
            f"is {drain.grace_seconds}",
        )
    return drain


def read_min_available(spec: Reader) -> int | str:
    """Read how many copies, or which percentage of them, evictions must leave."""
    reader = spec.object("disruption")
    value = reader.fields.get("minAvailable")
    if (
        isinstance(value, str)
        and value.endswith("%")
        and value[:-1].isascii()
        and value[:-1].isdigit()
    ):
        return value
    return reader.integer("minAvailable", 0, 0, 64)


def drained(
    context: Context, engine: EngineSpec, member: MemberSpec, template: Json
) -> Json:
    """Return a member's pod template with its `preStop` sleep and grace period.

    A template of an engine without `drain` is returned unchanged. A follower gets no
    requests and cannot detect when the last request of its leader has ended, so it
    sleeps for the whole grace period: a missing rank ends every request of its group. A
    native sidecar is stopped after the engine anyway.
    """
    drain = engine.drain
    if drain == DrainSpec():
        return template
    grace = (
        drain.grace_seconds
        or drain.pre_stop_seconds + context.settings.termination_grace_seconds
    )
    sleep = drain.pre_stop_seconds if member.serves else grace
    spec = {**template["spec"], "terminationGracePeriodSeconds": grace}
    if sleep and context.cluster.at_least(*SLEEP_SINCE):
        hook = {"preStop": {"sleep": {"seconds": sleep}}}
        spec["containers"] = [
            {**container, "lifecycle": hook} for container in spec["containers"]
        ]
    elif sleep and member.serves:
        context.findings.warn(
            f"engine {engine.name}",
            "drain.preStopSeconds has no effect: "
            f"cluster {context.cluster.name} runs Kubernetes "
            f"{context.facts.kubernetes_version}, and pods can sleep before they stop "
            f"from {'.'.join(map(str, SLEEP_SINCE))} on; "
            f"the grace period of {grace} s applies",
        )
    return {**template, "spec": spec}


def budgets(context: Context) -> list[RenderedObject]:
    """Return a PodDisruptionBudget for each engine with copies to keep."""
    found = []
    for engine in context.spec.engines:
        kept = copies_kept(context.spec.min_available, engine.copies)
        if kept > engine.copies:
            text = (
                f"disruption.minAvailable is {kept}, but there are {engine.copies} "
                "copies: lower it or raise copies"
            )
            context.findings.problem(f"engine {engine.name}", text)
        elif kept:
            found.append(_budget(context, engine, kept))
    return found


def _budget(context: Context, engine: EngineSpec, kept: int) -> RenderedObject:
    """Return the budget of one engine.

    A budget counts pods, and a group is lost with any of its pods. If the number of
    allowed evictions equals the number of groups that may be lost, no order of
    evictions stops more groups: at least one pod of a restarting group, its leader, is
    not ready. So the budget requires all other pods to be ready. Pods that are not
    ready can always be evicted. Otherwise an engine that never starts would keep its
    node.
    """
    name = context.engine_name(engine)
    key = contract.LWS_NAME_LABEL if engine.gang else labels.WORKLOAD
    has_policy = context.cluster.at_least(*_EVICTION_POLICY_SINCE)
    manifest = {
        "apiVersion": apiversions.POLICY,
        "kind": "PodDisruptionBudget",
        "metadata": context.metadata(name),
        "spec": compact(
            minAvailable=engine.copies * (engine.size - 1) + kept,
            selector={"matchLabels": {key: name}},
            unhealthyPodEvictionPolicy="AlwaysAllow" if has_policy else None,
        ),
    }
    return labelled_item(
        context.owner,
        f"{inventory_keys.BUDGET_PREFIX}{engine.name}",
        components.ENGINE,
        manifest,
        engine=engine.name,
    )
