"""Rules for the pod policy of a class.

Without them, a cluster would report these errors only after a replica is placed on it.
"""

import re
from collections.abc import Mapping

from api_types.resources.inference_class import InferenceClassSpec
from api_types.resources.parts.pod_policy import (
    ComputeAmounts,
    ComputeResources,
    HugePages,
    NodeToleration,
    PodPolicy,
    PolicyVariable,
    RdmaDevice,
    SeccompProfile,
)
from api_types.text.quantity import parse_quantity
from api_types.validation.rules.metadata import (
    is_dns_subdomain,
    is_label_value,
    label_key_problem,
)
from api_types.validation.rules.rule import Findings, RuleContext, Rules

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# These variables contain the position of a pod in its group, which a class cannot know.
_RESERVED_VARIABLES = ("MODELPLANE_", "LWS_")
_PAGE = {"2Mi": 2 * 1024**2, "1Gi": 1024**3}
_NANO = 10**9
_AMOUNTS = ("cpu", "memory", "ephemeral_storage")


def _amount(text: str, context: RuleContext, *at: str) -> Findings:
    problem = context.checks.quantity(text)
    if problem:
        yield context.error(problem, *at)
    elif _nano(text) <= 0:
        yield context.error(f'must be more than 0, got "{text}"', *at)


def _nano(text: str) -> int:
    try:
        return parse_quantity(text)
    except ValueError:
        return 1


def names_are_usable(policy: PodPolicy, context: RuleContext) -> Findings:
    """Check the names of other objects, the shared memory, and the capabilities."""
    for field, value in (
        ("runtimeClassName", policy.runtime_class_name),
        ("serviceAccountName", policy.service_account_name),
    ):
        if value is not None and not is_dns_subdomain(value):
            yield context.error(f'must be a DNS subdomain, got "{value}"', field)
    if policy.shm_size is not None:
        yield from _amount(policy.shm_size, context, "shmSize")
    if len(set(policy.capabilities or ())) < len(policy.capabilities or ()):
        yield context.error("name each capability once", "capabilities")


def huge_pages_are_whole(pages: HugePages, context: RuleContext) -> Findings:
    """Reject an amount that does not consist of whole pages."""
    yield from _amount(pages.amount, context, "amount")
    if not context.checks.quantity(pages.amount) and _nano(pages.amount) % (
        _PAGE[pages.size] * _NANO
    ):
        yield context.error(
            f'must be a multiple of the page size {pages.size}, got "{pages.amount}"',
            "amount",
        )


def variable_is_for_transports(
    variable: PolicyVariable, context: RuleContext
) -> Findings:
    """Reject names that Kubernetes rejects or that the platform sets."""
    if not _VARIABLE.fullmatch(variable.name):
        yield context.error(
            "must be letters, digits and underscores, not beginning with a digit, "
            f'got "{variable.name}"',
            "name",
        )
    if variable.name.startswith(_RESERVED_VARIABLES):
        reserved = " or ".join(_RESERVED_VARIABLES)
        yield context.error(
            f"the platform sets names that begin with {reserved} for each pod",
            "name",
        )


def amounts_are_quantities(amounts: ComputeAmounts, context: RuleContext) -> Findings:
    for name, text in _set(amounts).items():
        yield from _amount(text, context, name)


def limits_cover_requests(
    resources: ComputeResources, context: RuleContext
) -> Findings:
    """Reject a request above its limit."""
    limits, requests = _set(resources.limits), _set(resources.requests)
    for name in limits.keys() & requests.keys():
        if _nano(requests[name]) > _nano(limits[name]):
            yield context.error(
                f'must be at most the limit "{limits[name]}", got "{requests[name]}"',
                "requests",
                name,
            )


def requests_fit_a_node(spec: InferenceClassSpec, context: RuleContext) -> Findings:
    """Reject requests per device that a node cannot grant to all its devices."""
    resources = spec.pod_policy.resources if spec.pod_policy else None
    if resources is None:
        return
    at = ("podPolicy", "resources")
    named = {
        device.device_class_name or device.resource_name: device
        for device in reversed(spec.devices)
    }
    device = named.get(resources.device) if resources.device else spec.devices[0]
    if device is None:
        known = ", ".join(name for name in named if name) or "none"
        yield context.error(
            "no device of this class has this deviceClassName or resourceName; the class "
            f"has {known}",
            *at,
            "device",
        )
        return
    of_node = _set(spec.node_resources)
    requests = {**_set(resources.limits), **_set(resources.requests)}
    for name in of_node.keys() & requests.keys():
        if _nano(requests[name]) * device.count > _nano(of_node[name]):
            field = "requests" if name in _set(resources.requests) else "limits"
            yield context.error(
                f"{requests[name]} for each of {device.count} devices is more than the "
                f"node has, {of_node[name]}; lower it, or correct nodeResources",
                *at,
                field,
                name,
            )


def _set(amounts: ComputeAmounts | None) -> Mapping[str, str]:
    if amounts is None:
        return {}
    found = {
        (ComputeAmounts.model_fields[field].alias or field): getattr(amounts, field)
        for field in _AMOUNTS
    }
    return {name: text for name, text in found.items() if text is not None}


def resource_is_extended(device: RdmaDevice, context: RuleContext) -> Findings:
    """Require an extended resource; other names mean CPUs, memory or huge pages."""
    domain = device.resource_name.rpartition("/")[0]
    if (
        not domain
        or label_key_problem(device.resource_name)
        or domain == "kubernetes.io"
        or domain.endswith(".kubernetes.io")
    ):
        yield context.error(
            f'must look like "rdma/hca_shared_devices_a", got "{device.resource_name}"',
            "resourceName",
        )


def profile_fits_its_type(profile: SeccompProfile, context: RuleContext) -> Findings:
    """Require a path for type Localhost, and reject it for other types.

    The path must be below the kubelet's folder of profiles.
    """
    path = profile.localhost_profile
    if profile.type == "Localhost" and not path:
        yield context.error("required because type is Localhost", "localhostProfile")
    if profile.type != "Localhost" and path is not None:
        yield context.error("allowed only with type: Localhost", "localhostProfile")
    if path and (path.startswith("/") or ".." in path.split("/")):
        yield context.error(
            "must be a path below the kubelet's folder of profiles, "
            f'without "..", got "{path}"',
            "localhostProfile",
        )


def node_toleration_says_what_it_tolerates(
    toleration: NodeToleration, context: RuleContext
) -> Findings:
    """Check the key, and that Exists has no value."""
    problem = label_key_problem(toleration.key)
    if problem:
        yield context.error(problem, "key")
    if toleration.operator == "Exists" and toleration.value is not None:
        yield context.error(
            "operator Exists (the default) takes no value; set operator: Equal", "value"
        )
    if toleration.value is not None and not is_label_value(toleration.value):
        yield context.error(f'must be a label value, got "{toleration.value}"', "value")


RULES: Rules = {
    InferenceClassSpec: (requests_fit_a_node,),
    PodPolicy: (names_are_usable,),
    HugePages: (huge_pages_are_whole,),
    PolicyVariable: (variable_is_for_transports,),
    ComputeAmounts: (amounts_are_quantities,),
    ComputeResources: (limits_cover_requests,),
    RdmaDevice: (resource_is_extended,),
    SeccompProfile: (profile_fits_its_type,),
    NodeToleration: (node_toleration_says_what_it_tolerates,),
}
