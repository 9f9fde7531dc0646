"""`modelplane scale --wait`: the end of its wait."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from client.commands.change import scale
from client.follow import waiting
from tests.client.conftest import Cli

READY = {"type": "Ready", "status": "True", "reason": "Available"}


class Scaled:
    """A control plane whose deployment is Ready with one replica, while another leaves
    during a few polls.
    """

    def __init__(self) -> None:
        self.request_id = ""
        self.looks = 0

    async def scale(self, _target: object, message: Any) -> None:
        self.request_id = message.request_id

    async def describe(self, _target: object) -> dict[str, Any]:
        self.looks += 1
        phases = ["Ready", "Terminating"] if self.looks < 5 else ["Ready"]
        placements = [
            {"replica": f"qwen-{at}", "cluster": "eu", "phase": phase}
            for at, phase in enumerate(phases)
        ]
        status = {
            "observedGeneration": 1,
            "conditions": [READY],
            "placements": placements,
        }
        return {
            "metadata": {"generation": 1},
            "spec": {"replicas": 1},
            "status": status,
            "appliedRequestIds": [self.request_id],
        }


@pytest.mark.usefixtures("nowhere")
def test_a_scale_down_waits_until_the_replicas_that_leave_are_gone(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = Scaled()

    @asynccontextmanager
    async def fleet_objects(_settings: object) -> AsyncIterator[Scaled]:
        yield plane

    monkeypatch.setattr(scale, "fleet_objects", fleet_objects)
    monkeypatch.setattr(waiting, "_POLL_SECONDS", 0.001)
    result = cli("scale", "md/qwen", "--replicas", "1", "--wait")
    assert (result.code, result.out, plane.looks) == (
        0,
        "modeldeployment/qwen scaled to 1\n",
        5,
    )
    assert "not gone yet: qwen-1 on eu" in result.err
