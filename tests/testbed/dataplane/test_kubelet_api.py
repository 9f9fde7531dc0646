"""Logs and ports of simulated engines, through the real API server of a cluster.

The real part shows that an API server passes these requests on to a kubelet, and
accepts the client's protocols.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from activities.clients.kubernetes.kubeconfig import parse_kubeconfig
from activities.clients.kubernetes.pod_streams import PodId, PodStreams
from activities.clients.kubernetes.session import Session
from api_types.errors import InvalidInput, ServerError
from api_types.sections.clusters import KubeconfigSettings
from testbed.cluster.kube import Kube
from testbed.cluster.pki import Authority
from testbed.running import ClusterRunning
from testbed.testbed import Testbed
from tests.environment.waiting import TIMEOUT_SECONDS

NAMESPACE = "kubelet"
POD = PodId(NAMESPACE, "engine-0")
REQUEST = b"GET /health HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def eu(wired: Testbed) -> ClusterRunning:
    """The cluster, with one running engine."""
    running = wired.running()
    assert running
    cluster = running.clusters["eu"]
    with Kube(cluster.server, Authority(cluster.kubeconfig.parent / "pki")) as kube:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": POD.name, "namespace": NAMESPACE},
            "spec": {
                "automountServiceAccountToken": False,
                "containers": [
                    {
                        "name": "engine",
                        "image": "engine:1",
                        "ports": [{"containerPort": 8000}],
                    }
                ],
            },
        }
        namespace = {"apiVersion": "v1", "kind": "Namespace"}
        kube.apply({**namespace, "metadata": {"name": NAMESPACE}})
        kube.apply(pod)
    return cluster


@pytest.fixture
async def pods(eu: ClusterRunning) -> AsyncIterator[PodStreams]:
    settings = KubeconfigSettings(allow_loopback=True)
    access = parse_kubeconfig(eu.kubeconfig.read_text(), settings, "the kubeconfig")
    session = Session("eu", access)
    streams = PodStreams(session)
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not await is_logging(streams):  # noqa: ASYNC110 - it is elsewhere
                await asyncio.sleep(0.2)
        yield streams
    finally:
        await session.close()


async def is_logging(pods: PodStreams) -> bool:
    """Return whether the pod has started."""
    try:
        return bool(await log(pods))
    except (InvalidInput, ServerError):
        return False


async def log(pods: PodStreams, **options: str) -> list[str]:
    parts = [part async for part in pods.logs(POD, options)]
    return b"".join(parts).decode().splitlines()


async def asked(pods: PodStreams) -> bytes:
    """Return the answer of the engine to a request through its port."""
    async with pods.connection(POD, 8000) as stream:
        await stream.send(REQUEST)
        return b"".join([part async for part in stream.received()])


async def test_a_request_to_a_port_is_in_the_log(pods: PodStreams) -> None:
    assert (await asked(pods)).startswith(b"HTTP/1.1 200")
    first, *_, last = await log(pods)
    assert "Uvicorn running on http://10." in first
    assert last == 'INFO:     "GET /health HTTP/1.1" 200'
    (line,) = await log(pods, tailLines="1", timestamps="true", sinceSeconds="600")
    moment, _, text = line.partition(" ")
    assert (moment[10], moment[-1], text) == ("T", "Z", last)


async def test_a_followed_log_has_later_lines(pods: PodStreams) -> None:
    following = pods.logs(POD, {"follow": "true", "tailLines": "1"})
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await anext(following)
        await asked(pods)
        assert b"GET /health" in await anext(following)


async def test_a_closed_port_an_earlier_run_and_a_command_are_refused(
    pods: PodStreams,
) -> None:
    async with pods.connection(POD, 81) as stream:
        assert [part async for part in stream.received()] == []
        assert "port 81" in stream.problem
    with pytest.raises(InvalidInput, match="previous terminated container"):
        await log(pods, previous="true")
    async with pods.command(POD, "engine", ["ls"], stdin=False, tty=False) as stream:
        assert [part async for part in stream.output()] == []
        assert "no processes in which a command could run" in stream.problem
