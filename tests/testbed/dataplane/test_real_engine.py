"""A real engine answers through the whole path: two gateways, a route and a pod.

The engine is llama.cpp on a CPU. The testbed runs no containers, so the test starts the
engine of each pod at the address of the pod. The simulated engine of the same pod
listens on port 8000, so an answer of the real one shows that its profile is followed.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
from kubernetes.client import ApiClient

from testbed.dataplane.config import ENCLAVE
from testbed.process.processes import ProcessFiles
from testbed.running import ClusterRunning
from testbed.testbed import Testbed
from tests.environment import llama_cpp
from tests.testbed.dataplane.services import (
    DEPLOYMENT,
    TEAM,
    Services,
    a_fleet_with_services,
)
from tests.workflows.environment.harness import Json, a_deployment, eventually
from tests.workflows.environment.simulated_control import a_service, selecting

pytestmark = [pytest.mark.testbed, pytest.mark.soak, pytest.mark.timeout(7200)]

NAME = "small"
PORT = 9000
PROFILE: Json = {
    "name": "Custom",
    "port": PORT,
    "healthPath": "/v1/models",
    "metricsPath": "",
}
CHAT = [{"role": "user", "content": "hello"}]


def a_model() -> Json:
    """Return a deployment of the engine, which has a profile of its own."""
    document = a_deployment(NAME, TEAM)
    (engine,) = document["spec"]["template"]["spec"]["engines"]
    engine["profile"] = PROFILE
    (container,) = engine["members"][0]["template"]["spec"]["containers"]
    container["command"] = ["python3", "-m", "llama_cpp.server"]
    container["args"] = [
        "--model=/models/tiny.gguf",
        "--host=0.0.0.0",
        f"--port={PORT}",
    ]
    return document


@pytest.fixture
async def services(
    wired: Testbed, tmp_path: Path, kube: Callable[[ClusterRunning], ApiClient]
) -> AsyncIterator[Services]:
    async with a_fleet_with_services(wired, tmp_path, kube) as found:
        await found.complete()
        yield found
        await found.delete("ModelService", NAME)
        await found.delete("ModelDeployment", NAME)
        await found.plane.delete("InferenceGateway", "default")
        await found.plane.gone("InferenceGateway", "default")


def in_the_data_plane(services: Services, command: list[str]) -> list[str]:
    """Return a command that runs in the network of the pods."""
    enclave = ProcessFiles(services.plane.running.home).identity(ENCLAVE)
    assert enclave
    user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
    return ["nsenter", f"--target={enclave.pid}", "--net", *user, *command]


async def test_llama_cpp_answers_chats_and_streams_through_both_gateways(
    services: Services, tmp_path: Path
) -> None:
    python, model = llama_cpp.interpreter(), tmp_path / "tiny.gguf"
    llama_cpp.write_model(python, model)
    await services.plane.apply(a_model())
    ((_, cluster),) = (await services.placed(NAME, 1)).items()
    await services.plane.apply(a_service(NAME, selecting({DEPLOYMENT: NAME})))
    await services.ready(NAME, 1)
    (pod,) = services.plane.pods(cluster, TEAM)
    (container,) = pod["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"] == {
        "path": PROFILE["healthPath"],
        "port": PORT,
        "scheme": "HTTP",
    }
    command = llama_cpp.server_command(python, model, pod["status"]["podIP"], PORT)
    log = tmp_path / "engine.log"
    with log.open("w") as out:
        engine = await asyncio.create_subprocess_exec(
            *in_the_data_plane(services, command), stdout=out, stderr=out
        )
        try:
            await answers(services)
        finally:
            engine.terminate()
            await engine.wait()


async def answers(services: Services) -> None:
    asked = {"model": llama_cpp.MODEL, "messages": CHAT, "max_tokens": 8}
    url = f"{services.gateway}/{TEAM}/{NAME}"
    async with httpx.AsyncClient(timeout=60) as http:

        async def models() -> list[str]:
            answer = await http.get(f"{url}{PROFILE['healthPath']}")
            is_ok = answer.status_code == httpx.codes.OK
            return [each["id"] for each in answer.json()["data"]] if is_ok else []

        await eventually(
            models, lambda found: found == [llama_cpp.MODEL], what="the real engine"
        )
        answer = await http.post(f"{url}/v1/chat/completions", json=asked)
        assert answer.status_code == httpx.codes.OK, answer.text
        usage = answer.json()["usage"]
        assert 0 < usage["completion_tokens"] <= asked["max_tokens"]
        assert usage["prompt_tokens"] > 0
        lines = []
        async with http.stream(
            "POST", f"{url}/v1/chat/completions", json=asked | {"stream": True}
        ) as stream:
            assert stream.status_code == httpx.codes.OK
            lines = [line async for line in stream.aiter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    assert len(lines) > 1 + 1
