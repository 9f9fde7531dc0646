"""A refusal by Temporal is reported as one, and not as an unreachable server."""

import asyncio
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from api_types.messages.entities import SetSpec
from api_types.resources.kinds import BY_KIND
from api_types.settings import Settings
from fleet_client.errors import CommandFailed, Unreachable
from fleet_client.refs.targets import Target
from fleet_client.temporal.control_plane import ControlPlane

TARGET = Target.of(BY_KIND["ModelDeployment"], "ml", "qwen")


class Server:
    """A Temporal that answers every start with one error."""

    def __init__(self, error: RPCError) -> None:
        self.error = error

    async def start_workflow(self, *_words: Any, **_named: Any) -> None:
        raise self.error


def failure(error: RPCError) -> CommandFailed:
    plane = ControlPlane(cast("Client", Server(error)), Settings())
    with pytest.raises(CommandFailed) as failed:
        asyncio.run(
            plane.set_spec(TARGET, SetSpec(request_id="1", by="me", manifest={}))
        )
    return failed.value


def test_a_request_that_is_too_large_names_the_object_and_the_reason() -> None:
    refused = failure(
        RPCError("Blob data size exceeds limit.", RPCStatusCode.INVALID_ARGUMENT, b"")
    )
    assert (
        refused.message
        == "Temporal at 127.0.0.1:7233 refuses the request about ModelDeployment ml/qwen"
    )
    assert refused.details == ("Blob data size exceeds limit.",)
    assert not isinstance(refused, Unreachable)


def test_a_server_that_is_away_is_unreachable() -> None:
    assert isinstance(
        failure(RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b"")),
        Unreachable,
    )
