"""`get` and `describe` show how this machine reaches a service of the local fleet,
whose address leads nowhere from here.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from api_types.environment import CONFIG_VARIABLE
from api_types.resources.kinds import BY_KIND
from client.asking.service import way_from_here
from client.commands.inspect import describe
from fleet_client import connection, lookup
from fleet_client.lookup import LookupResult
from fleet_client.refs.seen import Execution, ListedObject
from fleet_client.refs.targets import Target
from fleet_client.temporal.control_plane import ControlPlane
from tests.client.conftest import Cli

LOCAL = "http://127.0.0.1:4711"
DEMO = Target.of(BY_KIND["ModelService"], "default", "demo")
CHAT = Target.of(BY_KIND["ModelService"], "ml", "chat")
ADDRESS = "http://10.245.255.1/default/demo"
WAY = (
    f"{ADDRESS} is in the network of the local fleet; from this machine use "
    "`modelplane chat demo` or `modelplane curl demo /v1/models`, or "
    f"{LOCAL}/default/demo/v1"
)


def a_service(address: str = ADDRESS) -> dict[str, Any]:
    return {
        "kind": "ModelService",
        "metadata": {"name": "demo"},
        "status": {"conditions": [], **({"address": address} if address else {})},
    }


@pytest.fixture
def local(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the settings file of a local fleet with a gateway."""
    monkeypatch.setattr("client.local.gateway.local_gateway_url", lambda _home: LOCAL)
    nowhere.mkdir()
    settings = nowhere / "config.yaml"
    settings.write_text("{}")
    return settings


@pytest.mark.usefixtures("local")
def test_the_way_is_one_line_with_the_namespace_of_the_service() -> None:
    assert way_from_here(DEMO, a_service()) == WAY
    assert (
        "`modelplane chat chat -n ml` or `modelplane curl chat /v1/models -n ml`"
        in way_from_here(CHAT, a_service())
    )
    assert way_from_here(DEMO, a_service("")) == ""


def test_a_service_of_another_fleet_is_reached_by_its_address(
    local: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "other.yaml"))
    assert way_from_here(DEMO, a_service()) == ""
    monkeypatch.setenv(CONFIG_VARIABLE, str(local))
    assert way_from_here(DEMO, a_service()) == WAY
    monkeypatch.delenv(CONFIG_VARIABLE)
    local.unlink()
    assert way_from_here(DEMO, a_service()) == ""


@pytest.mark.usefixtures("local")
@pytest.mark.parametrize(
    ("output", "said"), [("table", 1), ("wide", 1), ("json", 0), ("name", 0)]
)
def test_get_prints_the_hint_once_after_a_table(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, output: str, said: int
) -> None:
    found = [
        ListedObject(CHAT, a_service("")),
        ListedObject(DEMO, a_service()),
        ListedObject(DEMO, a_service()),
    ]
    monkeypatch.setattr(
        lookup, "find_objects", AsyncMock(return_value=LookupResult(found, [], []))
    )
    monkeypatch.setattr(connection, "fleet_objects", no_objects)
    result = cli("get", "ms", "-A", "-o", output)
    assert result.code == 0
    assert (result.err, WAY in result.out) == (f"note: {WAY}\n" * said, False)


@pytest.mark.usefixtures("local")
async def test_describe_prints_the_hint_below_the_path_of_a_request() -> None:
    answers = {
        "describe.return_value": a_service(),
        "list.return_value": [],
        "execution.return_value": Execution("http://ui"),
    }
    plane = AsyncMock(ControlPlane, **answers)
    lines = await describe.description(plane, DEMO)
    assert lines[lines.index("Events:") - 1] == f"Note: {WAY}"


@asynccontextmanager
async def no_objects(_settings: object) -> AsyncIterator[None]:
    yield None
