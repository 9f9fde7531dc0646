"""The gateway by which a command reaches a service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock

import pytest

from api_types.resources.kinds import BY_KIND
from client.asking import service
from client.asking.service import find_service
from fleet_client.errors import CommandFailed
from fleet_client.refs.targets import Target

CHAT = Target.of(BY_KIND["ModelService"], "ml", "chat")
GIVEN, LOCAL, OWN = "http://given:1/", "http://127.0.0.1:2", "http://10.0.0.9"


def a_fleet(monkeypatch: pytest.MonkeyPatch, local: str, address: str) -> None:
    """Make the service report an address, and this machine run a gateway."""
    plane = AsyncMock()
    plane.describe.return_value = {"status": {"address": address}}

    @asynccontextmanager
    async def connected(_: Any) -> AsyncIterator[Any]:
        yield plane

    monkeypatch.setattr(service, "load_settings", lambda: None)
    monkeypatch.setattr(service, "fleet_objects", connected)
    monkeypatch.setattr(service, "_local_gateway", lambda: local)


@pytest.mark.parametrize(
    ("given", "local", "address", "url"),
    [
        (GIVEN, LOCAL, OWN, "http://given:1/ml/chat"),
        (GIVEN, "", "", "http://given:1/ml/chat"),
        (None, LOCAL, OWN, "http://127.0.0.1:2/ml/chat"),
        (None, "", f"{OWN}/ml/chat", "http://10.0.0.9/ml/chat"),
    ],
    ids=["the named gateway", "no other gateway", "the local fleet", "its own address"],
)
async def test_a_service_is_reached_through_the_nearest_gateway(
    monkeypatch: pytest.MonkeyPatch,
    given: str | None,
    local: str,
    address: str,
    url: str,
) -> None:
    a_fleet(monkeypatch, local, address)
    assert (await find_service(CHAT, given)).url == url


@pytest.mark.parametrize("address", ["", "no address", "http://[bad"])
async def test_a_service_without_an_address_is_refused(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    a_fleet(monkeypatch, "", address)
    with pytest.raises(CommandFailed, match="it is not Ready yet"):
        await find_service(CHAT, None)
