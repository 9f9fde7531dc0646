"""The record of a stack: what an operator's settings and the source of a cluster say about it (spec 2, 2.9)."""

import re
from typing import Any

from api_types.pins import charts
from api_types.resources.serving_stack import ServingStackSpec
from api_types.settings import StackSettings

_GKE_DRIVER_ROOT = "/home/kubernetes/bin/nvidia"
_MINOR = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.")
# What needs no credential takes none; the record names the Secret that the cluster names.
_KUBECONFIG = "Kubeconfig"


class UntestedVersions(ValueError):
    """Pins that do not go together; the text says which, and what would."""


def driver_root(source: str) -> str:
    """Give where the NVIDIA driver lies on the nodes of a cluster of this source."""
    return _GKE_DRIVER_ROOT if source == "GKE" else "/"


def stack_record(source: str, secret: tuple[str, str], settings: StackSettings) -> ServingStackSpec:
    """Make the record of a cluster's stack; `secret` is name and key of its kubeconfig.

    Raises UntestedVersions for pins that do not go together; where the settings allow untested
    pairs, only for those of which that is known.
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
    spec = ServingStackSpec.model_validate(document)
    envoy_gateway = spec.versions.envoy_gateway if spec.versions else charts.ENVOY_GATEWAY.version
    check_pair(envoy_gateway, allow_untested=settings.allow_untested_pair)
    return spec


def check_pair(envoy_gateway: str, *, allow_untested: bool = False) -> None:
    """Refuse a version of Envoy Gateway that has no InferencePool backends, or that was not tested with the AI gateway (case 33)."""
    found, ai_gateway = minor(envoy_gateway), minor(charts.AI_GATEWAY.version)
    if found < charts.ENVOY_GATEWAY_FLOOR:
        floor = ".".join(map(str, charts.ENVOY_GATEWAY_FLOOR))
        raise UntestedVersions(
            f"ChartInvalid: Envoy Gateway {envoy_gateway} routes to no InferencePool; v{floor} is the oldest that does: "
            "change stack.versions"
        )
    if (found, ai_gateway) not in charts.ENVOY_PAIRS and not allow_untested:
        tested = ", ".join(sorted(f"v{major}.{minor_}" for (major, minor_), other in charts.ENVOY_PAIRS if other == ai_gateway))
        raise UntestedVersions(
            f"ChartInvalid: Envoy Gateway {envoy_gateway} was not tested with AI gateway {charts.AI_GATEWAY.version}, {tested} was: "
            "change stack.versions, or set stack.allowUntestedPair"
        )


def minor(version: str) -> tuple[int, int]:
    """Read the minor release of a version; (0, 0) of one that cannot be read."""
    found = _MINOR.match(version)
    return (int(found[1]), int(found[2])) if found else (0, 0)
