"""Recognize the load balancer Services of Modelplane's Gateway."""

from collections.abc import Mapping
from typing import Any

from activities.render.stack.components import ENVOY_GATEWAY
from api_types.labels import GATEWAY_NAME, SYSTEM_NAMESPACE

NAMESPACE = ENVOY_GATEWAY.pin.namespace
OWNING = "gateway.envoyproxy.io/owning-gateway"
"""The prefix of the labels with which Envoy Gateway names the Gateway of a Service."""


def is_of_gateway(service: Mapping[str, Any]) -> bool:
    """Return whether Envoy Gateway created a Service for Modelplane's Gateway."""
    metadata = service["metadata"]
    found = metadata.get("labels") or {}
    owning = (found.get(f"{OWNING}-name"), found.get(f"{OWNING}-namespace"))
    return metadata.get("namespace") == NAMESPACE and owning == (
        GATEWAY_NAME,
        SYSTEM_NAMESPACE,
    )
