"""What Temporal stores can be sealed: unreadable without the key, readable over a rotation, refused in words when a key is wrong."""

import base64
import os
from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from api_types.settings import EncryptionSettings, Settings, TemporalSettings
from client.errors import Refused
from client.temporal.codec import ENCODING, EncryptionCodec, UnknownKey, codec_of
from client.temporal.connection import connect
from testbed.programs.install import Installer
from testbed.programs.versions import TOOLS
from testbed.temporal import TEMPORAL

PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'{"image":"registry.example/model:1"}')


def a_key(folder: Path, name: str) -> Path:
    file = folder / name
    file.write_text(base64.b64encode(os.urandom(32)).decode())
    return file


async def test_a_sealed_payload_shows_nothing_and_opens_to_what_it_was() -> None:
    codec = EncryptionCodec({"k1": os.urandom(32)}, "k1")
    (sealed,) = await codec.encode([PLAIN])
    assert sealed.metadata["encoding"] == ENCODING
    assert b"registry.example" not in sealed.SerializeToString()
    assert await codec.decode([sealed]) == [PLAIN]


async def test_an_older_key_still_opens_after_a_rotation() -> None:
    old, new = os.urandom(32), os.urandom(32)
    (sealed,) = await EncryptionCodec({"old": old}, "old").encode([PLAIN])
    rotated = EncryptionCodec({"old": old, "new": new}, "new")
    assert await rotated.decode([sealed]) == [PLAIN]
    (fresh,) = await rotated.encode([PLAIN])
    with pytest.raises(UnknownKey, match="'new'"):
        await EncryptionCodec({"old": old}, "old").decode([fresh])


async def test_what_was_stored_before_encryption_passes() -> None:
    assert await EncryptionCodec({"k": os.urandom(32)}, "k").decode([PLAIN]) == [PLAIN]


async def test_a_wrong_key_under_the_right_id_is_reported() -> None:
    (sealed,) = await EncryptionCodec({"k": os.urandom(32)}, "k").encode([PLAIN])
    with pytest.raises(UnknownKey, match="is not the one"):
        await EncryptionCodec({"k": os.urandom(32)}, "k").decode([sealed])


def test_without_keys_nothing_is_encrypted() -> None:
    assert codec_of(EncryptionSettings()) is None


def test_every_unusable_key_is_named_at_once(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text(base64.b64encode(b"too short").decode())
    garbled = tmp_path / "garbled"
    garbled.write_text("%%%")
    settings = EncryptionSettings(keys={"a": tmp_path / "absent", "b": short, "c": garbled}, active_key="d")
    with pytest.raises(Refused) as refusal:
        codec_of(settings)
    details = "\n".join(refusal.value.details)
    for part in ("encryption.keys.a", "has 9 bytes, a key has 32", "is not base64", "encryption.activeKey: 'd' is not one of a, b, c"):
        assert part in details


@pytest.mark.testbed
async def test_a_memo_written_through_an_encrypted_connection_is_encrypted_on_the_server(tmp_path: Path) -> None:
    program = Installer(print).programs(tool for tool in TOOLS if tool.name == TEMPORAL)[TEMPORAL]
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=str(program)) as server:
        address = server.client.service_client.config.target_host
        encryption = EncryptionSettings(keys={"k1": a_key(tmp_path, "k1")}, active_key="k1")
        client = await connect(Settings(temporal=TemporalSettings(address=address), encryption=encryption))
        await client.start_workflow("ModelDeployment", {"secret": "not-to-be-seen"}, id="encrypted", task_queue="unserved")
        started = (await plain_history(server.client))[0]
        assert started.metadata["encoding"] == ENCODING
        assert b"not-to-be-seen" not in started.SerializeToString()


async def plain_history(client: Client) -> list[Payload]:
    history = await client.get_workflow_handle("encrypted").fetch_history()
    return list(history.events[0].workflow_execution_started_event_attributes.input.payloads)
