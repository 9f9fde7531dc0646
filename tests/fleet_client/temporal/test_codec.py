"""Payload encryption: unreadable without the key, readable during a rotation, and
refused with a message for a wrong key.
"""

import base64
import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import WorkflowSerializationContext
from temporalio.testing import WorkflowEnvironment

from api_types.payloads import unreadable
from api_types.sections.temporal import EncryptionSettings, TemporalSettings
from api_types.settings import Settings
from fleet_client.errors import Refused
from fleet_client.temporal.codec import ENCODING, WORKFLOW_ID, EncryptionCodec, codec_of
from fleet_client.temporal.connection import connect
from fleet_client.temporal.converter import PayloadConverter
from testbed.programs.install import Installer
from testbed.programs.versions import TOOLS
from testbed.temporal import TEMPORAL

PLAIN = Payload(
    metadata={"encoding": b"json/plain"}, data=b'{"image":"registry.example/model:1"}'
)


def a_key(folder: Path, name: str) -> Path:
    file = folder / name
    file.write_text(base64.b64encode(os.urandom(32)).decode())
    return file


class Context(WorkflowSerializationContext):
    """The context of a workflow that the SDK passes to a codec."""

    def __init__(self, workflow_id: str) -> None:
        super().__init__(namespace="default", workflow_id=workflow_id)


def opened(payload: Payload) -> Payload:
    """Return the payload without its arrival id."""
    plain: Payload = Payload.FromString(payload.SerializeToString())
    assert plain.metadata.pop(unreadable.ARRIVAL_ID)
    return plain


async def refusal(codec: EncryptionCodec, payload: Payload) -> str:
    """Decode an unreadable payload, and return the reason."""
    (decoded,) = await codec.decode([payload])
    assert decoded.metadata["encoding"] == unreadable.ENCODING
    problem: bytes = decoded.metadata[unreadable.PROBLEM]
    return problem.decode()


async def test_an_encrypted_payload_reveals_nothing_and_decrypts_to_the_original() -> (
    None
):
    codec = EncryptionCodec({"k1": os.urandom(32)}, "k1")
    (sealed,) = await codec.encode([PLAIN])
    assert sealed.metadata["encoding"] == ENCODING
    assert b"registry.example" not in sealed.SerializeToString()
    assert [opened(payload) for payload in await codec.decode([sealed])] == [PLAIN]


async def test_an_older_key_still_opens_after_a_rotation() -> None:
    old, new = os.urandom(32), os.urandom(32)
    (sealed,) = await EncryptionCodec({"old": old}, "old").encode([PLAIN])
    rotated = EncryptionCodec({"old": old, "new": new}, "new")
    assert [opened(payload) for payload in await rotated.decode([sealed])] == [PLAIN]
    (fresh,) = await rotated.encode([PLAIN])
    assert "key 'new', which is not in encryption.keys" in await refusal(
        EncryptionCodec({"old": old}, "old"), fresh
    )


async def test_plain_payloads_are_accepted_unless_encryption_is_required() -> None:
    key = os.urandom(32)
    assert [
        opened(payload)
        for payload in await EncryptionCodec({"k": key}, "k").decode([PLAIN])
    ] == [PLAIN]
    required = EncryptionCodec({"k": key}, "k", required=True)
    assert "is not encrypted, and encryption.required is set" in await refusal(
        required, PLAIN
    )
    # A payload that is no message is read nevertheless: it was written before the
    # setting.
    assert PayloadConverter().from_payloads(await required.decode([PLAIN]), [dict]) == [
        {"image": "registry.example/model:1"}
    ]


async def test_a_wrong_key_and_a_changed_payload_are_reported_and_raise_only_for_data() -> (
    None
):
    (sealed,) = await EncryptionCodec({"k": os.urandom(32)}, "k").encode([PLAIN])
    other = EncryptionCodec({"k": os.urandom(32)}, "k")
    assert "is not the one" in await refusal(other, sealed)
    with pytest.raises(unreadable.UnreadablePayload, match="is not the one"):
        PayloadConverter().from_payloads(await other.decode([sealed]), [dict])


@pytest.mark.parametrize(
    "data", [b"", b"x", os.urandom(5), os.urandom(12), os.urandom(2000)], ids=len
)
async def test_a_malformed_encrypted_payload_is_rejected_with_a_message(
    data: bytes,
) -> None:
    codec = EncryptionCodec({"k": os.urandom(32)}, "k")
    for metadata in (
        {"encryption-key-id": b"k"},
        {},
        {"encryption-key-id": b"\xff" * 100_000},
    ):
        assert (
            len(
                await refusal(
                    codec,
                    Payload(metadata={"encoding": ENCODING, **metadata}, data=data),
                )
            )
            < 1000
        )


async def test_a_payload_is_read_by_the_workflow_that_it_was_encrypted_for_and_by_no_other() -> (
    None
):
    codec = EncryptionCodec({"k": os.urandom(32)}, "k")
    ours, other = (
        codec.with_context(Context("modeldeployment/ml/chat")),
        codec.with_context(Context("modeldeployment/ml/other")),
    )
    (sealed,) = await ours.encode([PLAIN])
    assert [opened(payload) for payload in await ours.decode([sealed])] == [PLAIN]
    assert "was encrypted for modeldeployment/ml/chat" in await refusal(other, sealed)
    renamed = Payload(
        metadata={**sealed.metadata, WORKFLOW_ID: b"modeldeployment/ml/other"},
        data=sealed.data,
    )
    assert "or the payload was changed" in await refusal(other, renamed)
    unnamed = Payload(
        metadata={
            key: value for key, value in sealed.metadata.items() if key != WORKFLOW_ID
        },
        data=sealed.data,
    )
    assert "or the payload was changed" in await refusal(other, unnamed)
    # A listed memo is decrypted without a context.
    assert [opened(payload) for payload in await codec.decode([sealed])] == [PLAIN]


async def test_payloads_of_earlier_versions_are_readable() -> None:
    key, nonce = os.urandom(32), os.urandom(12)
    data = nonce + AESGCM(key).encrypt(nonce, PLAIN.SerializeToString(), b"k")
    earlier = Payload(
        metadata={"encoding": ENCODING, "encryption-key-id": b"k"}, data=data
    )
    codec = EncryptionCodec({"k": key}, "k").with_context(
        Context("modeldeployment/ml/chat")
    )
    assert [opened(payload) for payload in await codec.decode([earlier])] == [PLAIN]


def test_without_keys_nothing_is_encrypted() -> None:
    assert codec_of(EncryptionSettings()) is None


def test_every_unusable_key_is_named_at_once(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text(base64.b64encode(b"too short").decode())
    garbled = tmp_path / "garbled"
    garbled.write_text("%%%")
    settings = EncryptionSettings(
        keys={"a": tmp_path / "absent", "b": short, "c": garbled}, active_key="d"
    )
    with pytest.raises(Refused) as refusal:
        codec_of(settings)
    details = "\n".join(refusal.value.details)
    for part in (
        "encryption.keys.a",
        "has 9 bytes, a key has 32",
        "is not base64",
        "encryption.activeKey: 'd' is not one of a, b, c",
    ):
        assert part in details


@pytest.mark.testbed("shared")
async def test_a_memo_written_through_an_encrypted_connection_is_encrypted_on_the_server(
    tmp_path: Path,
) -> None:
    program = Installer(print).programs(
        tool for tool in TOOLS if tool.name == TEMPORAL
    )[TEMPORAL]
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(program)
    ) as server:
        address = server.client.service_client.config.target_host
        encryption = EncryptionSettings(
            keys={"k1": a_key(tmp_path, "k1")}, active_key="k1"
        )
        client = await connect(
            Settings(temporal=TemporalSettings(address=address), encryption=encryption)
        )
        await client.start_workflow(
            "ModelDeployment",
            {"secret": "not-to-be-seen"},
            id="encrypted",
            task_queue="unserved",
        )
        started = (await plain_history(server.client))[0]
        assert started.metadata["encoding"] == ENCODING
        assert b"not-to-be-seen" not in started.SerializeToString()


async def plain_history(client: Client) -> list[Payload]:
    history = await client.get_workflow_handle("encrypted").fetch_history()
    return list(
        history.events[0].workflow_execution_started_event_attributes.input.payloads
    )
