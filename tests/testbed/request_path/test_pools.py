"""Many pools on one cluster."""

import httpx
import pytest

from testbed.cluster.kube import path_of
from tests.testbed.request_path.request_path import (
    CHAT,
    Model,
    RequestPath,
    chat,
    eventually,
)

pytestmark = [pytest.mark.testbed, pytest.mark.soak]

POOLS = 200
KINDS = ("InferencePool", "HTTPRoute", "Service")


def test_envoy_receives_two_hundred_pools(path: RequestPath) -> None:
    """Envoy Gateway sends all of them in one message, which exceeds the default limit.

    The pools have no pods and no pickers: a route that leads to none fails with another
    status than a route that Envoy does not know.
    """
    models = [path.render(f"pool-{number}") for number in range(POOLS)]
    manifests = [
        each.manifest
        for model in models
        for each in model.rendered.objects
        if each.manifest["kind"] in KINDS
    ]
    try:
        for manifest in manifests:
            path.kube.apply(manifest)
        eventually(
            lambda: all(is_known(model) for model in models), f"{POOLS} routes in Envoy"
        )
    finally:
        for manifest in manifests:
            path.kube.delete(path_of(manifest))


def is_known(model: Model) -> bool:
    """Return whether Envoy has a route to a model."""
    try:
        answer = httpx.post(f"{model.url}{CHAT}", json=chat(), timeout=30)
    except httpx.TransportError:
        return False  # Envoy closes connections while it changes the listener
    return answer.status_code != httpx.codes.NOT_FOUND
