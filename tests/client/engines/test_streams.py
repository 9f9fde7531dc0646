"""The requests of a command to the API server, and the display of the answers."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from activities.pod_access import (
    STDERR,
    STDOUT,
    CommandStream,
    PodId,
    PodStreams,
)
from api_types.errors import InvalidInput
from client.commands.engines.logs import log_options
from client.engines.forwarding import PortPair, port_pair
from client.engines.log_lines import lines, print_logs
from client.engines.pods import EnginePod, _engine_pod, _of_member
from client.engines.remote_command import run_connected
from client.engines.workloads import EngineWorkload, engines_target
from fleet_client.errors import CommandFailed, NotFound, Refused

EU = EngineWorkload("eu", "ml", "qwen-1", "main", "modelplane.ai/workload=x")
LWS = "leaderworkerset.sigs.k8s.io/name"


def a_pod(name: str, pods: object = None, **fields: Any) -> EnginePod:
    chosen: dict[str, Any] = {
        "member": "standalone",
        "containers": ("engine", "proxy"),
        "ready": True,
    }
    return EnginePod(
        EU, PodId("ml", name), streams=cast(PodStreams, pods), **(chosen | fields)
    )


class Logs:
    """Logs by pod; a pod without one waits to start."""

    def __init__(self, **texts: bytes) -> None:
        self.texts = texts
        self.asked: list[Mapping[str, str]] = []

    async def logs(
        self, pod: PodId, options: Mapping[str, str]
    ) -> AsyncIterator[bytes]:
        self.asked.append(options)
        if pod.name not in self.texts:
            raise InvalidInput(f"{pod.name} waits to start")
        yield self.texts[pod.name]


@pytest.mark.parametrize("at_once", [False, True])
async def test_several_logs_have_prefixes_and_one_that_fails_is_named_at_the_end(
    capsys: pytest.CaptureFixture[str], at_once: bool
) -> None:
    pods = Logs(a=b"1\n2", c=b"3\n")
    chosen = [(a_pod(name, pods), "engine") for name in ("a", "b", "c")]
    with pytest.raises(CommandFailed, match="b waits to start"):
        await print_logs(chosen, {"follow": "true"}, prefixed=True, at_once=at_once)
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "[pod/a/engine] 1",
        "[pod/a/engine] 2",
        "[pod/c/engine] 3",
    ]
    assert pods.asked == [{"follow": "true", "container": "engine"}] * 3


async def test_a_line_may_come_in_parts() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for each in (b"a", b"b\n\nc", b"d\n", b"e"):
            yield each

    assert [line async for line in lines(chunks())] == [b"ab", b"", b"cd", b"e"]


async def test_a_line_without_end_does_not_fill_the_memory() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b"x" * (1 << 19)

    assert [len(line) >> 19 async for line in lines(chunks())] == [3, 2]


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({}, {}),
        ({"tail": 0}, {"tailLines": "0"}),
        ({"since": 0.2}, {"sinceSeconds": "1"}),
        (
            {"follow": True, "previous": True, "timestamps": True, "since": 90.0},
            {
                "follow": "true",
                "previous": "true",
                "timestamps": "true",
                "sinceSeconds": "90",
            },
        ),
    ],
)
def test_options_are_those_of_the_api(given: Any, want: dict[str, str]) -> None:
    flags = {"follow": False, "previous": False, "timestamps": False}
    assert log_options(**{**flags, "since": None, "tail": -1, **given}) == want


@pytest.mark.parametrize(
    ("word", "want"),
    [
        ("8000", PortPair(8000, 8000)),
        ("8080:8000", PortPair(8080, 8000)),
        (":8000", PortPair(0, 8000)),
    ],
)
def test_ports_are_written_as_for_kubectl(word: str, want: PortPair) -> None:
    assert port_pair(word) == want


@pytest.mark.parametrize("word", ["", "a", "1:2:3", "0", "70000", "-1:80", "80:"])
def test_other_ports_are_refused(word: str) -> None:
    with pytest.raises(Refused, match="is no pair of ports"):
        port_pair(word)


@pytest.mark.parametrize(
    ("pod_labels", "member"),
    [
        ({}, "standalone"),
        ({LWS: "x", "modelplane.ai/lws-role": "leader"}, "leader"),
        ({LWS: "x"}, "worker"),
    ],
)
def test_a_pod_has_a_member_and_a_first_container(
    pod_labels: dict[str, str], member: str
) -> None:
    tree = {
        "metadata": {
            "name": "p",
            "namespace": "ml",
            "labels": pod_labels,
            "annotations": {"kubectl.kubernetes.io/default-container": "engine"},
        },
        "spec": {
            "initContainers": [{"name": "wait"}],
            "containers": [{"name": "proxy"}, {"name": "engine"}],
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    pod = _engine_pod(EU, tree, cast(PodStreams, None))
    containers = ("engine", "proxy", "wait")
    assert pod == a_pod("p", member=member, containers=containers)
    assert (pod.container(None), pod.container("wait")) == ("engine", "wait")
    with pytest.raises(Refused, match="did you mean proxy"):
        pod.container("proxi")


def test_a_ready_pod_comes_first_and_a_member_can_be_chosen() -> None:
    target = engines_target("md/qwen", "ml")
    first = a_pod("a", ready=False, member="leader")
    second = a_pod("b", member="worker")
    assert _of_member([first, second], None, target) == [second, first]
    assert _of_member([first, second], "leader", target) == [first]
    with pytest.raises(NotFound) as failed:
        _of_member([first, second], "standalone", target)
    assert failed.value.next_step == "the names are leader, worker"


class Command:
    """A command that prints, and ends with an exit code or a problem."""

    def __init__(self, code: int, problem: str) -> None:
        self.exit_code, self.problem = code, problem

    @asynccontextmanager
    async def command(
        self, *_args: Any, **_options: Any
    ) -> AsyncIterator[CommandStream]:
        yield cast(CommandStream, self)

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        await asyncio.sleep(0)
        yield STDOUT, b"\xffout"
        yield STDERR, b"err"


async def test_output_is_unchanged_and_the_exit_code_is_that_of_the_command(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    pod = a_pod("a", Command(3, ""))
    code = await run_connected(pod, "engine", ["ls"], stdin=False, terminal=False)
    assert code == 3
    assert tuple(capfdbinary.readouterr()) == (b"\xffout", b"err")
    pod = a_pod("a", Command(1, "no such file"))
    with pytest.raises(CommandFailed, match="pod a on cluster eu: no such file"):
        await run_connected(pod, "engine", ["ls"], stdin=False, terminal=False)
