"""Place the pods of a copy close together, and share GPU memory between their nodes.

The rendered fields depend on the scheduler of the cluster. Without a queueing
scheduler, an exclusive domain is an annotation of the LeaderWorkerSet, and any other
domain is pod affinity within the group. Kueue and KAI assign a whole group at once and
have their own annotations. The fields are always part of the pod templates too, so that
a change applies to running pods.
"""

from activities.render.engines.context import Context
from activities.render.engines.pods import member_path, override
from activities.render.engines.spec import (
    ComputeDomainSpec,
    DeviceConstraintSpec,
    Domain,
    EngineSpec,
    MemberSpec,
    TopologySpec,
)
from activities.render.inputs.findings import (
    Findings,
    ServingStackMissing,
    TopologyUnsupported,
)
from activities.render.inputs.reader import Reader
from activities.render.objects import components, inventory_keys
from activities.render.objects.manifest import Json, RenderedObject, labelled_item
from activities.render.objects.queues import KAI, KUEUE
from api_types import names
from api_types.digests import content_hash
from api_types.limits import DEVICE_CONSTRAINTS_MAX
from api_types.pins import apiversions
from api_types.pins.features import COMPUTE_DOMAIN
from api_types.validation.rules.topology import attribute_problem, node_label_problem

PREFERRED = "Preferred"
_REQUIRED = "Required"
_SINGLE = "Single"
_LWS_EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"
# The controller sets both labels on every pod of a group before the pod is stored.
_LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
_LWS_GROUP_KEY = "leaderworkerset.sigs.k8s.io/group-key"
_KUEUE_PLACEMENT = {
    _REQUIRED: "kueue.x-k8s.io/podset-required-topology",
    PREFERRED: "kueue.x-k8s.io/podset-preferred-topology",
}
# Kueue treats leader and followers as two sets of pods, and places a group of sets
# together.
_KUEUE_GROUP = "kueue.x-k8s.io/podset-group-name"
_KUEUE_GROUP_NAME = "copy"
_KAI_TOPOLOGY = "kai.scheduler/topology"
_KAI_PLACEMENT = {
    _REQUIRED: "kai.scheduler/topology-required-placement",
    PREFERRED: "kai.scheduler/topology-preferred-placement",
}
# The first release that restricts affinity to pods with the same value of a label.
# Older releases drop the field without an error.
_MATCH_LABEL_KEYS_SINCE = (1, 31)
_PREFERENCE_WEIGHT = 100
_CHANNEL = "channel"


def read_topology(engine: Reader) -> TopologySpec:
    """Read `engines[].topology`. Absent fields have no effect."""
    block = engine.object("topology")
    domain = compute_domain = None
    if block.has("domain"):
        domain = _read_domain(block.object("domain"))
    if block.has("computeDomain"):
        channels = block.object("computeDomain").choice(
            "channels", _SINGLE, (_SINGLE, "All")
        )
        compute_domain = ComputeDomainSpec(channels)
    constraints = []
    listed = block.sequence("deviceConstraints")[:DEVICE_CONSTRAINTS_MAX]
    for index, value in enumerate(listed):
        where = f"{block.where}, deviceConstraints[{index}]"
        constraints.append(_read_constraint(Reader(value, where, block.findings)))
    return TopologySpec(domain, tuple(constraints), compute_domain)


def check_topology(engine: EngineSpec, findings: Findings) -> None:
    """Report settings that no cluster can render."""
    where = f"engine {engine.name}, topology"
    domain = engine.topology.domain
    if domain and not engine.gang:
        findings.problem(
            where,
            "domain is for a Leader with Workers: a copy of this engine is one pod",
        )
    if domain and domain.exclusive and domain.mode == PREFERRED:
        findings.problem(where, "domain.exclusive needs mode Required")
    claimed = {request.name for member in engine.members for request in member.claims}
    for constraint in engine.topology.constraints:
        for name in constraint.requests:
            if name not in claimed:
                findings.warn(
                    where,
                    f"deviceConstraints names {name!r}, which no member claims through "
                    "DRA on this cluster: it restricts nothing",
                )


def check_cluster(context: Context) -> None:
    """Raise an error if the cluster lacks a feature that an engine's topology needs.

    Raises ServingStackMissing or TopologyUnsupported.
    """
    asking = [
        engine.name for engine in context.spec.engines if engine.topology.compute_domain
    ]
    if asking and context.cluster.lacks(COMPUTE_DOMAIN):
        problem = f"engine {', '.join(asking)}: {context.lacking(COMPUTE_DOMAIN)}"
        raise ServingStackMissing(context.subject, (problem,))
    problems = []
    for engine in context.spec.engines:
        domain = engine.topology.domain
        problem = _unsupported(context, domain) if domain else ""
        if problem:
            problems.append(
                f"engine {engine.name}, topology.domain: "
                f"cluster {context.cluster.name} {problem}"
            )
    if problems:
        raise TopologyUnsupported(context.subject, tuple(problems))


def keep_together(
    context: Context, engine: EngineSpec, member: MemberSpec, template: Json
) -> Json:
    """Return a member's pod template with the placement and channel of its copy.

    The placement is relative to the other pods of the copy. The channel connects the
    member to them.
    """
    spec = dict(template["spec"])
    metadata = dict(template.get("metadata", {}))
    managed = _placement(context, engine)
    if managed:
        metadata["annotations"] = override(
            context,
            member_path(engine, member),
            metadata.get("annotations", {}),
            managed,
        )
    domain = engine.topology.domain
    if (
        domain
        and not domain.exclusive
        and context.facts.scheduler_type not in (KAI, KUEUE)
    ):
        spec["affinity"] = {
            **spec.get("affinity", {}),
            "podAffinity": _affinity(context, engine, domain),
        }
    if engine.topology.compute_domain and member.claims:
        channel = {
            "name": _CHANNEL,
            "resourceClaimTemplateName": _channel_name(
                context, engine, engine.topology.compute_domain
            ),
        }
        container = dict(spec["containers"][0])
        container["resources"] = {
            **container["resources"],
            "claims": [*container["resources"]["claims"], {"name": _CHANNEL}],
        }
        spec["containers"] = [container, *spec["containers"][1:]]
        spec["resourceClaims"] = [*spec["resourceClaims"], channel]
    return {**({"metadata": metadata} if metadata else {}), "spec": spec}


def workload_annotations(context: Context, engine: EngineSpec) -> dict[str, str]:
    """Return the annotations of the workload itself.

    Kueue reads only the annotations of the pod templates.
    """
    return {} if context.facts.scheduler_type == KUEUE else _placement(context, engine)


def pod_group_constraint(engine: EngineSpec) -> Json:
    """Return the topology of one of our KAI PodGroups; empty without a domain."""
    domain = engine.topology.domain
    if domain is None:
        return {}
    level = (
        "preferredTopologyLevel"
        if domain.mode == PREFERRED
        else "requiredTopologyLevel"
    )
    return {"topology": domain.topology_name, level: domain.node_label}


def compute_domains(context: Context) -> list[RenderedObject]:
    """Return a ComputeDomain for every engine that requests one.

    The driver creates the claim template that the pods reference.
    """
    return [
        _compute_domain(context, engine, engine.topology.compute_domain)
        for engine in context.spec.engines
        if engine.topology.compute_domain
    ]


def _read_domain(block: Reader) -> Domain:
    label = block.text("nodeLabel", required=True)
    if label and (problem := node_label_problem(label)):
        block.findings.problem(block.where, f"nodeLabel {problem}")
    return Domain(
        node_label=label,
        mode=block.choice("mode", _REQUIRED, (_REQUIRED, PREFERRED)),
        exclusive=block.fields.get("exclusive") is True,
        topology_name=block.text("topologyName"),
    )


def _read_constraint(block: Reader) -> DeviceConstraintSpec:
    attribute = block.text("matchAttribute", required=True)
    if attribute and (problem := attribute_problem(attribute)):
        block.findings.problem(block.where, f"matchAttribute {problem}")
    return DeviceConstraintSpec(attribute, block.texts("requests"))


def _unsupported(context: Context, domain: Domain) -> str:
    scheduler = context.facts.scheduler_type
    if scheduler in (KAI, KUEUE) and domain.exclusive:
        # The controller creates the followers of an exclusive group only when its
        # leader has a node, but both schedulers only assign whole groups.
        return (
            f"runs the scheduler {scheduler}, which assigns all pods of a copy at once, "
            "and an exclusive domain creates the leader alone: remove exclusive, "
            "or select clusters without a queueing scheduler"
        )
    if scheduler == KAI and not domain.topology_name:
        return (
            "runs the scheduler kai, which needs the name of a Topology object: "
            "set topologyName"
        )
    if (
        scheduler not in (KAI, KUEUE)
        and not domain.exclusive
        and not context.cluster.at_least(*_MATCH_LABEL_KEYS_SINCE)
    ):
        since = ".".join(map(str, _MATCH_LABEL_KEYS_SINCE))
        return (
            f"runs Kubernetes {context.facts.kubernetes_version}, and affinity within a "
            f"copy needs {since}: set exclusive: true, or upgrade"
        )
    return ""


def _placement(context: Context, engine: EngineSpec) -> dict[str, str]:
    domain = engine.topology.domain
    if domain is None:
        return {}
    if context.facts.scheduler_type == KUEUE:
        return {
            _KUEUE_PLACEMENT[domain.mode]: domain.node_label,
            _KUEUE_GROUP: _KUEUE_GROUP_NAME,
        }
    if context.facts.scheduler_type == KAI:
        # Modelplane's own PodGroup has the constraint itself. KAI then groups no pods
        # and reads no annotation.
        return {
            _KAI_TOPOLOGY: domain.topology_name,
            _KAI_PLACEMENT[domain.mode]: domain.node_label,
        }
    return {_LWS_EXCLUSIVE: domain.node_label} if domain.exclusive else {}


def _affinity(context: Context, engine: EngineSpec, domain: Domain) -> Json:
    term = {
        "labelSelector": {"matchLabels": {_LWS_NAME: context.engine_name(engine)}},
        "matchLabelKeys": [_LWS_GROUP_KEY],
        "topologyKey": domain.node_label,
    }
    if domain.mode == PREFERRED:
        return {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": _PREFERENCE_WEIGHT, "podAffinityTerm": term}
            ]
        }
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _compute_domain_spec(domain: ComputeDomainSpec) -> Json:
    # numNodes 0 means no fixed size: the spec is immutable, and the number of nodes
    # changes with the copies.
    return {"numNodes": 0, "channel": {"allocationMode": domain.channels}}


def _channel_name(
    context: Context, engine: EngineSpec, domain: ComputeDomainSpec
) -> str:
    digest = content_hash(_compute_domain_spec(domain))
    return names.claim_template_name(
        context.replica.namespace, context.replica.name, engine.name, _CHANNEL, digest
    )


def _compute_domain(
    context: Context, engine: EngineSpec, domain: ComputeDomainSpec
) -> RenderedObject:
    name = _channel_name(context, engine, domain)
    spec = _compute_domain_spec(domain)
    manifest = {
        "apiVersion": apiversions.COMPUTE_DOMAIN,
        "kind": "ComputeDomain",
        "metadata": context.metadata(name),
        "spec": {
            **spec,
            "channel": {**spec["channel"], "resourceClaimTemplate": {"name": name}},
        },
    }
    key = f"{inventory_keys.COMPUTE_DOMAIN_PREFIX}{engine.name}"
    return labelled_item(
        context.owner, key, components.DEVICE_CLAIM, manifest, engine=engine.name
    )
