"""Rules for the topology of an engine, for ModelDeployment and ModelReplica."""

import re
from collections import Counter

from api_types.resources.model_deployment import Engine
from api_types.resources.model_replica import ReplicaEngine
from api_types.resources.parts.topology import DeviceConstraint, TopologyDomain
from api_types.validation.rules.metadata import is_dns_subdomain, label_key_problem
from api_types.validation.rules.rule import Findings, RuleContext, Rules

_DOMAIN_MAX = 63
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")


def node_label_problem(label: str) -> str:
    """Return the reason why a text is not a label key of nodes, or ""."""
    problem = label_key_problem(label)
    if not problem:
        return ""
    return (
        "must be the key of a node label, such as topology.kubernetes.io/zone: "
        f"{problem}"
    )


def attribute_problem(attribute: str) -> str:
    """Return the reason why a text is not a qualified device attribute, or ""."""
    domain, slash, name = attribute.partition("/")
    if (
        slash
        and len(domain) <= _DOMAIN_MAX
        and is_dns_subdomain(domain)
        and _IDENTIFIER.fullmatch(name)
    ):
        return ""
    return (
        "must be <domain>/<name>, such as resource.kubernetes.io/pcieRoot, "
        f'got "{attribute}"'
    )


def domain_needs_a_gang(
    engine: Engine | ReplicaEngine, context: RuleContext
) -> Findings:
    """Reject a domain if each copy is a single pod."""
    if (
        engine.topology
        and engine.topology.domain
        and all(member.role == "Standalone" for member in engine.members)
    ):
        yield context.error(
            "only a Leader and Worker engine has several pods in a copy; remove domain",
            "topology",
            "domain",
        )


def constraints_name_requests(engine: Engine, context: RuleContext) -> Findings:
    """Reject constraints on requests that no member has."""
    known = set()
    for member in engine.members:
        if member.node_selector:
            known |= {request.name for request in member.node_selector.devices}
    shown = ", ".join(sorted(known)) or "none"
    constraints = engine.topology.device_constraints if engine.topology else None
    for index, constraint in enumerate(constraints or ()):
        for name in constraint.requests or ():
            if name not in known:
                text = (
                    f'no member of the engine requests "{name}"; '
                    f"its requests are: {shown}"
                )
                yield context.error(
                    text, "topology", "deviceConstraints", index, "requests"
                )


def domain_is_usable(domain: TopologyDomain, context: RuleContext) -> Findings:
    """Require a label key and a valid name, and mode Required for exclusive domains."""
    problem = node_label_problem(domain.node_label)
    if problem:
        yield context.error(problem, "nodeLabel")
    if domain.topology_name is not None and not is_dns_subdomain(domain.topology_name):
        yield context.error(
            "not the name of a Topology; "
            "use lower-case letters, digits, '-' and '.', at most 253",
            "topologyName",
        )
    if domain.exclusive and domain.mode != "Required":
        yield context.error(
            f"an exclusive domain needs mode Required, got {domain.mode}", "exclusive"
        )


def constraint_is_usable(
    constraint: DeviceConstraint, context: RuleContext
) -> Findings:
    """Require a valid DRA attribute, and each request once."""
    problem = attribute_problem(constraint.match_attribute)
    if problem:
        yield context.error(problem, "matchAttribute")
    for name, times in Counter(constraint.requests or ()).items():
        if times > 1:
            yield context.error(
                f'"{name}" is listed {times} times; list each request once', "requests"
            )


RULES: Rules = {
    Engine: (domain_needs_a_gang, constraints_name_requests),
    ReplicaEngine: (domain_needs_a_gang,),
    TopologyDomain: (domain_is_usable,),
    DeviceConstraint: (constraint_is_usable,),
}
