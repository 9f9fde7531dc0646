"""An API key is sent over TLS, or not at all."""

from pathlib import Path

import pytest

from api_types.sections.temporal import TemporalSettings
from api_types.settings import Settings
from fleet_client.errors import Refused, Unreachable
from fleet_client.temporal.connection import connect


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_text("an-api-key")
    return file


@pytest.mark.parametrize(
    "address",
    [
        "temporal.example:7233",
        "10.0.0.7:7233",
        "[2001:db8::1]:7233",
        "localhost.example:7233",
    ],
)
async def test_a_key_is_not_sent_in_the_clear(key: Path, address: str) -> None:
    settings = Settings(temporal=TemporalSettings(address=address, api_key_file=key))
    with pytest.raises(
        Refused,
        match=r"temporal\.apiKeyFile: without TLS the key would be sent to .* in the clear",
    ) as refused:
        await connect(settings, within_seconds=0.01)
    assert "set temporal.tls to true" in refused.value.next_step
    assert "an-api-key" not in str(refused.value)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:1", "[::1]:1"])
async def test_a_server_on_this_machine_needs_no_tls(key: Path, address: str) -> None:
    with pytest.raises(Unreachable):
        await connect(
            Settings(temporal=TemporalSettings(address=address, api_key_file=key)),
            within_seconds=0.5,
        )


async def test_with_tls_it_is_sent(key: Path) -> None:
    with pytest.raises(Unreachable):
        await connect(
            Settings(
                temporal=TemporalSettings(
                    address="192.0.2.1:1", api_key_file=key, tls=True
                )
            ),
            within_seconds=0.01,
        )
