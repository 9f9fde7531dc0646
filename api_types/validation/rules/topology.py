"""Rules for the topology of an engine, on a ModelDeployment and on a ModelReplica alike."""

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
    """Say why a text is no label key of nodes; empty if it is one."""
    return (
        f"must be the key of a node label, such as topology.kubernetes.io/zone: {problem}" if (problem := label_key_problem(label)) else ""
    )


def attribute_problem(attribute: str) -> str:
    """Say why a text is no attribute of devices with its domain; empty if it is one."""
    domain, slash, name = attribute.partition("/")
    if slash and len(domain) <= _DOMAIN_MAX and is_dns_subdomain(domain) and _IDENTIFIER.fullmatch(name):
        return ""
    return f'must be <domain>/<name>, such as resource.kubernetes.io/pcieRoot, got "{attribute}"'


def domain_needs_a_gang(engine: Engine | ReplicaEngine, context: RuleContext) -> Findings:
    """Refuse a domain for a copy that is one pod."""
    if engine.topology and engine.topology.domain and all(member.role == "Standalone" for member in engine.members):
        yield context.error("only a Leader and Worker engine has several pods in a copy; remove domain", "topology", "domain")


def constraints_name_requests(engine: Engine, context: RuleContext) -> Findings:
    """Refuse constraints on requests that no member makes."""
    known = {request.name for member in engine.members if member.node_selector for request in member.node_selector.devices}
    for index, constraint in enumerate((engine.topology and engine.topology.device_constraints) or ()):
        for name in constraint.requests or ():
            if name not in known:
                shown = ", ".join(sorted(known)) or "none"
                text = f'no member of the engine requests "{name}"; its requests are: {shown}'
                yield context.error(text, "topology", "deviceConstraints", index, "requests")


def domain_is_usable(domain: TopologyDomain, context: RuleContext) -> Findings:
    """Require a label key, a name that an object can have, and mode Required for an exclusive domain."""
    if problem := node_label_problem(domain.node_label):
        yield context.error(problem, "nodeLabel")
    if domain.topology_name is not None and not is_dns_subdomain(domain.topology_name):
        yield context.error("not the name of a Topology; use lower-case letters, digits, '-' and '.', at most 253", "topologyName")
    if domain.exclusive and domain.mode != "Required":
        yield context.error(f"an exclusive domain needs mode Required, got {domain.mode}", "exclusive")


def constraint_is_usable(constraint: DeviceConstraint, context: RuleContext) -> Findings:
    """Require an attribute as DRA reads it, and each request once."""
    if problem := attribute_problem(constraint.match_attribute):
        yield context.error(problem, "matchAttribute")
    for name, times in Counter(constraint.requests or ()).items():
        if times > 1:
            yield context.error(f'"{name}" is there {times} times; name each request once', "requests")


RULES: Rules = {
    Engine: (domain_needs_a_gang, constraints_name_requests),
    ReplicaEngine: (domain_needs_a_gang,),
    TopologyDomain: (domain_is_usable,),
    DeviceConstraint: (constraint_is_usable,),
}
