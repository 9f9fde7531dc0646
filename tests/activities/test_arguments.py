"""The value of an activity argument that cannot be read, before a worker rejects it.

`tests/wire` covers this on a real server.
"""

from temporalio.converter import ActivitySerializationContext

from activities.arguments import InvalidArgument, tolerant
from api_types.messages.delivery import SignalRequest
from fleet_client.temporal.codec import EncryptionCodec
from fleet_client.temporal.converter import DATA_CONVERTER
from tests.wire.inputs import bad_inputs, value

CONTEXT = ActivitySerializationContext(
    "default", None, None, None, "modeldeployment/ml/chat", None, is_local=False
)


def test_each_mistake_becomes_a_message_and_a_valid_argument_its_value() -> None:
    converter = tolerant(DATA_CONVERTER).with_context(CONTEXT).payload_converter
    for mistake, arguments in bad_inputs(SignalRequest).items():
        if len(arguments) == 1:
            (read,) = converter.from_payloads([arguments[0].payload], [SignalRequest])
            assert isinstance(read, InvalidArgument), mistake
            assert 0 < len(read.problem.encode()) <= 1000
            assert not read.undecrypted, mistake
    request = SignalRequest(workflow_id="modeldeployment/ml/chat", signal="delete")
    assert converter.from_payloads(
        [value(request.wire()).payload], [SignalRequest]
    ) == [request]
    # Without a type the value is JSON, which raises no error either.
    assert converter.from_payloads([value([1]).payload]) == [[1]]
    assert converter.to_payloads(
        [request]
    ) == DATA_CONVERTER.payload_converter.to_payloads([request])


async def test_payloads_that_a_key_may_still_decrypt_are_distinguished() -> None:
    sealed = await EncryptionCodec({"k": b"k" * 32}, "k").encode([value({}).payload])
    unsealed = await EncryptionCodec({"other": b"o" * 32}, "other").decode(sealed)
    converter = tolerant(DATA_CONVERTER).payload_converter
    (read,) = converter.from_payloads(unsealed, [SignalRequest])
    assert isinstance(read, InvalidArgument)
    assert read.undecrypted
    required = EncryptionCodec({"k": b"k" * 32}, "k", required=True)
    (read,) = converter.from_payloads(
        await required.decode([value({}).payload]), [SignalRequest]
    )
    assert read == InvalidArgument(
        "a payload is not encrypted, and encryption.required is set: send it "
        "with the keys of this fleet"
    )
