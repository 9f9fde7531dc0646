"""Followers wait for the name and the port of their leader before they start."""

import os
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest

from activities.render.engines.rendezvous import CONTAINER, PROGRAM
from activities.render.inputs.settings import RenderSettings
from tests.activities.render.builders import a_gang, pod, render

ADDRESS = "$(MODELPLANE_LEADER_ADDRESS)"


def waiting(worker: dict[str, Any], **gang: Any) -> list[dict[str, Any]]:
    rendered = render(a_gang(worker=worker, **gang))
    found: list[dict[str, Any]] = pod(rendered, role="Worker")["spec"]["initContainers"]
    return found


@pytest.mark.parametrize(
    ("worker", "port"),
    [
        ({"args": [f"--dist-init-addr={ADDRESS}:20000"]}, 20000),
        ({"args": ["--nccl-init-addr", "$(LWS_LEADER_ADDRESS):5000"]}, 5000),
        ({"args": [f"--master-addr={ADDRESS}", "--master-port=29501"]}, 29501),
        ({"args": [f"--data-parallel-address={ADDRESS}", "-dpp", "5555"]}, 5555),
        (
            {"command": ["sh", "-c", "ray start --address=${LWS_LEADER_ADDRESS}:6379"]},
            6379,
        ),
        ({"args": ["--dist-init-addr=10.0.0.1:20000"]}, 0),
        ({"args": ["--headless"]}, 0),
    ],
    ids=[
        "SGLang",
        "SGLang, older",
        "vLLM, tensor parallel",
        "vLLM, data parallel",
        "Ray in a shell",
        "another address",
        "no port",
    ],
)
def test_the_port_is_read_from_the_flags_of_the_follower(
    worker: dict[str, Any], port: int
) -> None:
    (container,) = waiting(worker)
    assert container["name"] == CONTAINER
    assert container["image"] == RenderSettings().hydration_image
    assert container["command"] == ["python3", "-c", PROGRAM, str(port)]


@pytest.mark.parametrize("port", [0, 7777])
def test_the_profile_overrides_the_port(port: int) -> None:
    (container,) = waiting(
        {"args": [f"--dist-init-addr={ADDRESS}:20000"]}, profile={"leaderPort": port}
    )
    assert container["command"][-1] == str(port)


def test_leaders_do_not_wait() -> None:
    assert "initContainers" not in pod(render(a_gang()))["spec"]


def test_the_program_ends_when_the_leader_listens() -> None:
    with socket.socket() as leader:
        leader.bind(("127.0.0.1", 0))
        port = leader.getsockname()[1]
        follower = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(port)],
            env={**os.environ, "LWS_LEADER_ADDRESS": "localhost"},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert follower.stdout is not None
        watchdog = threading.Timer(60, follower.kill)
        watchdog.start()
        with follower.stdout as lines:
            assert "waiting for the leader localhost" in next(lines)
            assert follower.poll() is None
            leader.listen()
            assert "the leader responds" in lines.read()
        assert follower.wait() == 0
        watchdog.cancel()
