"""Requests while pods of a replica are not ready, end, or refuse connections."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from testbed.cluster.kube import path_of
from testbed.dataplane.pods import REFUSES
from tests.testbed.request_path.request_path import (
    CHAT,
    Model,
    RequestPath,
    chat,
    eventually,
    spread,
)

pytestmark = [pytest.mark.testbed, pytest.mark.soak]

NEVER_READY = {"testbed.modelplane.ai/ready": "never"}


@pytest.fixture
def model(path: RequestPath) -> Iterator[Model]:
    with path.model("pods") as running:
        yield running


def test_without_a_ready_pod_requests_fail_at_once(path: RequestPath) -> None:
    model = path.apply("unready", annotations=NEVER_READY)
    try:
        eventually(lambda: path.ready(path.picker_pods(model)), "a ready picker")
        # The route leads to the picker before it is ready.
        eventually(lambda: status(model) == httpx.codes.SERVICE_UNAVAILABLE, "503")
    finally:
        path.delete(model)


def status(model: Model) -> int:
    """Return the status of a chat request, or 0 without a response."""
    try:
        answer = httpx.post(f"{model.url}{CHAT}", json=chat(), timeout=30)
    except httpx.TransportError:
        return 0  # Envoy closes connections while it changes the listener
    return answer.status_code


async def test_a_terminating_pod_gets_no_new_requests(
    path: RequestPath, model: Model
) -> None:
    first, second = path.pods(model)
    path.kube.delete(path_of({"apiVersion": "v1", "kind": "Pod"} | first))
    await asyncio.to_thread(
        eventually,
        lambda: len(path.ready(path.pods(model))) == 2,
        "a pod in place of the deleted pod",
    )
    addresses = {each["status"]["podIP"] for each in path.pods(model)}
    assert second["status"]["podIP"] in addresses
    found = await spread(model, 40, chat(), at_once=8)
    assert found.keys() <= addresses, found


async def test_requests_to_a_refusing_pod_fail_so_that_they_can_be_retried(
    path: RequestPath, model: Model
) -> None:
    """The pod stays ready until its next probes fail. Nothing else excludes it."""
    first, second = path.pods(model)
    path.annotate(first, {REFUSES: "true"})
    await asyncio.sleep(1)
    found = await spread(model, 40, chat(), at_once=4)
    assert found.keys() == {second["status"]["podIP"], "503"}, found
