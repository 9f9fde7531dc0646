"""What an activity gets for an argument that cannot be read, before a worker refuses it (`tests/wire` has that on a real server)."""

from temporalio.converter import ActivitySerializationContext

from activities.arguments import Refused, tolerant
from api_types.messages.delivery import SignalRequest
from client.temporal.codec import EncryptionCodec
from client.temporal.converter import DATA_CONVERTER
from tests.wire.inputs import bad_inputs, value

CONTEXT = ActivitySerializationContext("default", None, None, None, "modeldeployment/ml/chat", None, is_local=False)


def test_each_mistake_becomes_words_and_a_proper_argument_what_it_is() -> None:
    converter = tolerant(DATA_CONVERTER).with_context(CONTEXT).payload_converter
    for mistake, arguments in bad_inputs(SignalRequest).items():
        if len(arguments) == 1:
            (read,) = converter.from_payloads([arguments[0].payload], [SignalRequest])
            assert isinstance(read, Refused), mistake
            assert 0 < len(read.problem.encode()) <= 1000
            assert not read.undecrypted, mistake
    request = SignalRequest(workflow_id="modeldeployment/ml/chat", signal="delete")
    assert converter.from_payloads([value(request.wire()).payload], [SignalRequest]) == [request]
    # Without a type it is JSON; nothing of it raises either.
    assert converter.from_payloads([value([1]).payload]) == [[1]]
    assert converter.to_payloads([request]) == DATA_CONVERTER.payload_converter.to_payloads([request])


async def test_what_a_key_may_still_decrypt_is_told_from_what_nothing_will() -> None:
    sealed = await EncryptionCodec({"k": b"k" * 32}, "k").encode([value({}).payload])
    unsealed = await EncryptionCodec({"other": b"o" * 32}, "other").decode(sealed)
    converter = tolerant(DATA_CONVERTER).payload_converter
    (read,) = converter.from_payloads(unsealed, [SignalRequest])
    assert isinstance(read, Refused)
    assert read.undecrypted
    required = EncryptionCodec({"k": b"k" * 32}, "k", required=True)
    (read,) = converter.from_payloads(await required.decode([value({}).payload]), [SignalRequest])
    assert read == Refused("a payload is not encrypted, and encryption.required is set: send it with the keys of this fleet")
