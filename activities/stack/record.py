"""The record of a stack, created from an operator's settings and a cluster's source."""

import re
from typing import Any

from api_types.pins import charts
from api_types.resources.serving_stack import ServingStackSpec, StackVersions
from api_types.sections.stacks import StackSettings

_GKE_DRIVER_ROOT = "/home/kubernetes/bin/nvidia"
_MINOR = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.")
# Parts that need no credential get none. The record only contains the name of the
# Secret with the cluster's kubeconfig.
_KUBECONFIG = "Kubeconfig"


class UntestedVersions(ValueError):
    """The pinned versions do not work together.

    The message names the versions, and the setting to change.
    """


def driver_root(source: str) -> str:
    """Return the NVIDIA driver's directory on the nodes of a cluster."""
    return _GKE_DRIVER_ROOT if source == "GKE" else "/"


def stack_record(
    source: str, secret: tuple[str, str], settings: StackSettings
) -> ServingStackSpec:
    """Create the record of a cluster's stack.

    `secret` is the name and key of its kubeconfig. Raises UntestedVersions for pins
    that do not work together. With `settings.allow_untested_pair` it raises only for
    pairs that are known to fail.
    """
    name, key = secret
    document: dict[str, Any] = {
        "secrets": [{"type": _KUBECONFIG, "name": name, "key": key}],
        "nvidiaDriverRoot": driver_root(source),
        "versions": dict(settings.versions),
        "gateway": {
            "className": settings.gateway_class,
            "longestGenerationSeconds": settings.longest_generation,
        },
    }
    if settings.compute_domains:
        document["computeDomains"] = True
    if settings.values:
        document["values"] = dict(settings.values)
    pods = {
        "tolerations": settings.tolerations,
        "priorityClassName": settings.priority_class_name,
        "affinity": settings.affinity,
    }
    if any(pods.values()):
        document["pods"] = {key: value for key, value in pods.items() if value}
    spec = ServingStackSpec.model_validate(document)
    check_pair(
        spec.versions or StackVersions(), allow_untested=settings.allow_untested_pair
    )
    return spec


def check_pair(versions: StackVersions, *, allow_untested: bool = False) -> None:
    """Raise UntestedVersions for an unsupported version of Envoy Gateway.

    It must support InferencePool backends, and must have been tested with the AI
    gateway.
    """
    envoy_gateway = versions.envoy_gateway
    found, ai_gateway = minor(envoy_gateway), minor(versions.ai_gateway)
    if found < charts.ENVOY_GATEWAY_FLOOR:
        floor = ".".join(map(str, charts.ENVOY_GATEWAY_FLOOR))
        raise UntestedVersions(
            f"ChartInvalid: Envoy Gateway {envoy_gateway} cannot route to an InferencePool: "
            f"set stack.versions.envoyGateway to v{floor} or newer"
        )
    if (found, ai_gateway) not in charts.ENVOY_PAIRS and not allow_untested:
        tested = sorted(
            f"v{pair[0]}.{pair[1]}"
            for pair, other in charts.ENVOY_PAIRS
            if other == ai_gateway
        )
        other = f"but {', '.join(tested)} was" if tested else "and no version was"
        raise UntestedVersions(
            f"ChartInvalid: Envoy Gateway {envoy_gateway} was not tested with AI gateway "
            f"{versions.ai_gateway}, {other}: change stack.versions.envoyGateway or "
            "stack.versions.aiGateway, or set stack.allowUntestedPair"
        )


def minor(version: str) -> tuple[int, int]:
    """Parse the minor release of a version. Returns (0, 0) if it is malformed."""
    found = _MINOR.match(version)
    return (int(found[1]), int(found[2])) if found else (0, 0)
