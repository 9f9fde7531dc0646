"""A signal starts its receiver if needed, with the attributes that lists show."""

from typing import Any, cast

from temporalio.client import Client

from activities.messaging.sending import ensure_directory, ensure_upgrades
from api_types.messages.delivery import SignalRequest


class Server:
    """Records the started workflows."""

    def __init__(self) -> None:
        self.started: list[tuple[str, dict[str, str]]] = []

    async def start_workflow(self, kind: str, _argument: None, **options: Any) -> None:
        attributes = options["search_attributes"]
        self.started.append((kind, {pair.key.name: pair.value for pair in attributes}))


def attributes(**values: str) -> dict[str, str]:
    return {f"Modelplane{name}": value for name, value in values.items()}


async def test_a_workflow_started_by_a_signal_has_its_kind_name_and_phase() -> None:
    server = Server()
    client = cast("Client", server)
    request = SignalRequest(workflow_id="x", signal="s", payload={})
    await ensure_upgrades(client, request)
    await ensure_directory(client, "ml", request)
    upgrades = attributes(Kind="StackUpgrades", Name="default", Phase="Ready")
    directory = attributes(
        Kind="EndpointDirectory", Name="ml", Namespace="ml", Phase="Ready"
    )
    assert server.started == [
        ("StackUpgrades", upgrades),
        ("EndpointDirectory", directory),
    ]
