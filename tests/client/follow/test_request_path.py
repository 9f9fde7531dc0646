"""The way of a request, as `describe` draws it: what the gateway sends again."""

from typing import Any
from unittest.mock import AsyncMock

import pytest

from api_types.resources.kinds import BY_KIND
from client.follow.request_path import request_path
from client.refs.targets import Target
from client.temporal.control_plane import ControlPlane

READY = {"type": "RetriesReady", "status": "True", "reason": "MiddlewareApplied"}
NOT_READY = {"type": "RetriesReady", "status": "False", "reason": "MiddlewareUnavailable", "message": "do this"}


@pytest.mark.parametrize(
    ("retries", "condition", "want"),
    [
        (None, None, []),
        ({"attempts": 1}, READY, ["    ✓ requests are sent again up to 1 time if nothing of them was sent"]),
        (
            {"attempts": 2, "codes": [429, 503]},
            NOT_READY,
            ["    ✗ requests are sent again up to 2 times if nothing of them was sent, or after 429, 503 (MiddlewareUnavailable: do this)"],
        ),
    ],
)
async def test_the_way_says_which_requests_are_sent_again(retries: Any, condition: Any, want: list[str]) -> None:
    spec = {"endpoints": [], **({"retries": retries} if retries else {})}
    service = {"spec": spec, "status": {"conditions": [condition] if condition else []}}
    plane = AsyncMock(ControlPlane, **{"describe.return_value": {"status": {}}})
    lines = await request_path(plane, Target.of(BY_KIND["ModelService"], "ml", "chat"), service)
    assert [line for line in lines if "sent again" in line] == want
