"""Requests while the endpoint picker of a replica changes, or is lost."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from testbed.cluster.kube import path_of
from tests.testbed.request_path.request_path import (
    CHAT,
    Model,
    RequestPath,
    chat,
    client,
    eventually,
)

pytestmark = [pytest.mark.testbed, pytest.mark.soak]

OK = "answered"
PAUSE_SECONDS = 0.1
# Longer than Envoy's pause between two resolutions of a picker's name.
SETTLED_SECONDS = 15


@asynccontextmanager
async def load(model: Model) -> AsyncIterator[Counter[str]]:
    """Send a request every moment. Count the successes, and the texts of errors."""
    found: Counter[str] = Counter()

    async def send(http: httpx.AsyncClient) -> None:
        while True:
            answer = await http.post(f"{model.url}{CHAT}", json=chat())
            error = f"{answer.status_code} {answer.text[:80]}"
            found[OK if answer.is_success else error] += 1
            await asyncio.sleep(PAUSE_SECONDS)

    async with client() as http:
        sending = asyncio.create_task(send(http))
        try:
            yield found
        finally:
            sending.cancel()


def pickers(path: RequestPath, model: Model) -> set[str]:
    """Return the names of the ready pickers that nobody has deleted."""
    return {
        pod["metadata"]["name"]
        for pod in path.ready(path.picker_pods(model))
        if "deletionTimestamp" not in pod["metadata"]
    }


async def test_a_change_of_the_configuration_loses_no_request(
    path: RequestPath,
) -> None:
    with path.model("changed") as model:
        before = pickers(path, model)
        async with load(model) as found:
            await asyncio.to_thread(
                path.apply,
                "changed",
                settings={"epp_kv_cache_weight": 5},
            )

            def replaced() -> bool:
                after = pickers(path, model)
                return len(after) == 1 and after != before

            await asyncio.to_thread(eventually, replaced, "a new picker alone")
            await asyncio.sleep(SETTLED_SECONDS)
        assert set(found) == {OK}, found


async def test_the_other_picker_takes_over(path: RequestPath) -> None:
    settings = {"epp_replicas": 2}
    with path.model("pair", settings=settings) as model:
        await asyncio.to_thread(
            eventually, lambda: len(pickers(path, model)) == 2, "two pickers"
        )
        (first, _) = path.picker_pods(model)
        async with load(model) as found:
            path.kube.delete(
                f"{path_of({'apiVersion': 'v1', 'kind': 'Pod'} | first)}"
                "?gracePeriodSeconds=0"
            )
            await asyncio.sleep(SETTLED_SECONDS)
            failed = found.total() - found[OK]
            await asyncio.sleep(SETTLED_SECONDS)
            assert found.total() - found[OK] == failed, found


@pytest.mark.parametrize("mode", ["FailOpen", "FailClose"])
def test_without_a_picker_requests_fail_in_every_mode(
    path: RequestPath, mode: str
) -> None:
    """Envoy AI Gateway ignores the mode of a pool, so the endpoint has to be withdrawn."""
    settings = {"epp_failure_mode": mode}
    with path.model(f"lost-{mode.lower()}", settings=settings) as model:
        (deployment,) = [
            each.manifest
            for each in model.rendered.objects
            if each.manifest["kind"] == "Deployment"
            and each.manifest["metadata"]["name"] == model.picker
        ]
        path.merge(deployment, {"spec": {"replicas": 0}})
        for pod in path.picker_pods(model):
            path.kube.delete(
                f"{path_of({'apiVersion': 'v1', 'kind': 'Pod'} | pod)}"
                "?gracePeriodSeconds=0"
            )

        def failed() -> bool:
            answer = httpx.post(f"{model.url}{CHAT}", json=chat(), timeout=60)
            return answer.is_server_error

        eventually(failed, "a failed request without a picker")
