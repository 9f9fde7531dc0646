"""What is known of a cluster, and what that means for its conditions: pure readings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api_types import labels
from workflows.entity.conditions import FALSE, TRUE, UNKNOWN

# (status, reason, message) of a condition.
Verdict = tuple[str, str, str]


@dataclass(frozen=True)
class Known:
    """All that the verdicts read. `failure`: type and message of the last failed contact; `silence`: why the observer hears nothing."""

    source: str
    missing_classes: Sequence[str]
    failure: tuple[str, str]
    in_contact: bool
    was_ready: bool
    silence: str
    gateway_address: str
    gateway_message: str
    external_stack: bool


def cluster_verdict(known: Known) -> Verdict:
    """Judge `ClusterReady`. A class that goes missing after the first Ready is said, and costs nothing."""
    missing = ", ".join(known.missing_classes)
    if known.source != "Existing":
        return FALSE, "ProviderNotSupported", f"this release does not provision {known.source} clusters; bring one with source: Existing"
    if missing and not known.was_ready:
        return FALSE, "WaitingForClasses", f"InferenceClass {missing} does not exist; apply it"
    kind, message = known.failure
    if kind in ("CredentialsInvalid", "ClusterUnreachable"):
        return FALSE, "Unreachable" if kind == "ClusterUnreachable" else kind, message
    if kind:
        return FALSE, "Provisioning", f"{kind}: {message}"
    if not known.in_contact:
        return FALSE, "Provisioning", "connecting"
    if known.silence:
        return FALSE, "Unreachable", known.silence
    return TRUE, "ClusterRunning", f"InferenceClass {missing} is gone; its pools take no new replica" if missing else ""


def backend_verdict(known: Known) -> Verdict:
    """Judge `BackendReady`: the gateway of the serving stack has an address."""
    if cluster_verdict(known)[0] != TRUE:
        return UNKNOWN if known.in_contact else FALSE, "WaitingForCluster", "the cluster is not ready"
    if known.gateway_address:
        return TRUE, "BackendHealthy", ""
    gateway = f"Gateway {labels.SYSTEM_NAMESPACE}/{labels.GATEWAY_NAME}"
    if known.external_stack:
        return FALSE, "Installing", known.gateway_message or f"{gateway} has no address"
    advice = f"this release does not install the serving stack: install it and annotate {labels.STACK}: external"
    return FALSE, "Installing", f"{advice} ({known.gateway_message or f'{gateway} was not found'})"


def ready_verdict(known: Known) -> Verdict:
    """Judge `Ready`: cluster and backend; else the first that blocks."""
    for status, reason, message in (cluster_verdict(known), backend_verdict(known)):
        if status != TRUE:
            return FALSE, "Unavailable" if known.was_ready else "Creating", f"{reason}: {message}"
    return TRUE, "Available", ""


def drivers(pools: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Map each device class that the published pools claim through to the DRA driver behind it."""
    devices = [device for pool in pools for device in pool["devices"]]
    return {device["deviceClassName"]: device["driver"] for device in devices if device.get("deviceClassName") and device.get("driver")}
