"""Pods that have to go: how an engine is stopped, and how many of its copies evictions leave.

A pod that is deleted and the endpoint that leads to it are two objects: gateways learn of a deletion seconds after the pod does. So a
serving pod goes on as before for a while (`preStopSeconds`); the requests that it has by then end in what is left of its grace period.
"""

from activities.render.engines.context import Context
from activities.render.engines.spec import Drain, Engine, Member
from activities.render.inputs.reader import Reader
from activities.render.objects import components, contract, inventory_keys
from activities.render.objects.manifest import Item, Json, compact, labelled_item
from api_types import labels
from api_types.pins import apiversions
from api_types.resources.parts.disruption import GRACE_SECONDS_MAX, PRE_STOP_SECONDS_MAX, copies_kept

# From this release on, kubelets sleep by themselves. Before, a hook runs a program of the image, and images of engines need not have one.
_SLEEP_SINCE = (1, 30)
# From this release on, a budget says whether pods that are not ready count.
_EVICTION_POLICY_SINCE = (1, 27)


def read_drain(engine: Reader) -> Drain:
    """Read how an engine is stopped."""
    reader = engine.object("drain")
    drain = Drain(
        pre_stop_seconds=reader.integer("preStopSeconds", 0, 0, PRE_STOP_SECONDS_MAX),
        grace_seconds=reader.integer("graceSeconds", 0, 1, GRACE_SECONDS_MAX),
    )
    if drain.grace_seconds and drain.grace_seconds <= drain.pre_stop_seconds:
        reader.findings.problem(
            reader.where, f"graceSeconds must be more than preStopSeconds ({drain.pre_stop_seconds}), is {drain.grace_seconds}"
        )
    return drain


def read_min_available(spec: Reader) -> int | str:
    """Read what evictions must leave: copies, or a percentage of them."""
    reader = spec.object("disruption")
    value = reader.fields.get("minAvailable")
    if isinstance(value, str) and value.endswith("%") and value[:-1].isascii() and value[:-1].isdigit():
        return value
    return reader.integer("minAvailable", 0, 0, 64)


def drained(context: Context, engine: Engine, member: Member, template: Json) -> Json:
    """Give a member's pod template with the sleep before its stop and its grace period; unchanged for an engine without `drain`.

    A follower gets no requests and cannot know when the last one of its leader has ended, so it stays for the whole grace period: a rank
    that is missing ends every request of its group. A sidecar that runs beside the engine as a native one is stopped after it anyway.
    """
    drain = engine.drain
    if drain == Drain():
        return template
    grace = drain.grace_seconds or drain.pre_stop_seconds + context.settings.termination_grace_seconds
    sleep = drain.pre_stop_seconds if member.serves else grace
    spec = {**template["spec"], "terminationGracePeriodSeconds": grace}
    if sleep and context.cluster.at_least(*_SLEEP_SINCE):
        hook = {"preStop": {"sleep": {"seconds": sleep}}}
        spec["containers"] = [{**container, "lifecycle": hook} for container in spec["containers"]]
    elif sleep and member.serves:
        context.findings.warn(
            f"engine {engine.name}",
            f"drain.preStopSeconds has no effect: cluster {context.cluster.name} runs Kubernetes {context.facts.kubernetes_version}, "
            f"and pods can sleep before they stop from {'.'.join(map(str, _SLEEP_SINCE))} on; the grace period of {grace} s holds",
        )
    return {**template, "spec": spec}


def budgets(context: Context) -> list[Item]:
    """Give a PodDisruptionBudget for each engine whose copies evictions must not all take."""
    found = []
    for engine in context.spec.engines:
        kept = copies_kept(context.spec.min_available, engine.copies)
        if kept > engine.copies:
            text = f"disruption.minAvailable is {kept}, and there are {engine.copies} copies: lower it or raise copies"
            context.findings.problem(f"engine {engine.name}", text)
        elif kept:
            found.append(_budget(context, engine, kept))
    return found


def _budget(context: Context, engine: Engine, kept: int) -> Item:
    """Give the budget of one engine.

    A budget counts pods, and a group is lost with any of its pods. With as many evictions allowed as groups may be lost, no order of them
    takes more groups: for a group that starts again one pod at least, its leader, is not ready. So all pods but those few have to be ready.
    Pods that are not ready can be evicted in any case; otherwise an engine that never starts would keep its node.
    """
    name = context.engine_name(engine)
    manifest = {
        "apiVersion": apiversions.POLICY,
        "kind": "PodDisruptionBudget",
        "metadata": context.metadata(name),
        "spec": compact(
            minAvailable=engine.copies * (engine.size - 1) + kept,
            selector={"matchLabels": {contract.LWS_NAME_LABEL if engine.gang else labels.WORKLOAD: name}},
            unhealthyPodEvictionPolicy="AlwaysAllow" if context.cluster.at_least(*_EVICTION_POLICY_SINCE) else None,
        ),
    }
    return labelled_item(context.owner, f"{inventory_keys.BUDGET_PREFIX}{engine.name}", components.ENGINE, manifest, engine=engine.name)
