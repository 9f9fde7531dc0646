"""What Temporal carries: its limits, what this project allows itself below them, and how a sequence is split so that each part fits.

Measured on server 1.29 with SDK 1.31, whose own check of payload sizes did not prevent any of it:

* one payload over 2 MiB: the server terminates the workflow whose task has it (argument of an activity, result of a local activity,
  continue-as-new, result, memo); an activity's result fails the activity, a query fails, a signal or start is refused to its sender.
* a search attribute over 2 KiB: the server terminates the workflow.
* commands of one task over 4 MiB together, or more than 2,000 pending activities: the task fails, again and again.
* the argument of a local activity is never sent.

None of these gets better by itself. So every list that grows with a fleet goes through `split_by_size` or is `packing.Compact`, and what
cannot be split is refused at admission. Pure, so that workflow code may call it. Not here: the sizes of single fields, which are rules of
admission.

Sizes are those of the JSON that the payload converter writes, in bytes. Our own limits leave half of what the server takes, for a payload
codec and for the rest of the request. `EncryptionCodec` adds less than 200 bytes to a payload; nothing compresses it.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from pydantic_core import to_json

_KIB = 1024
_MIB = 1024 * _KIB

# --- the limits of the server, with its dynamic configuration keys -----------------------------------------------------------------------

SERVER_PAYLOAD_BYTES = 2 * _MIB
"""One payload, or all payloads of one input, result, signal, memo or query answer (`limit.blobSize.error`, `limit.memoSize.error`)."""

SERVER_MESSAGE_BYTES = 4 * _MIB
"""One gRPC message: all commands of a workflow task together."""

SERVER_HISTORY_BYTES = 50 * _MIB
"""One run; beyond it the server terminates the workflow (`limit.historySize.error`)."""

SERVER_HISTORY_EVENTS = 51_200
"""One run, likewise (`limit.historyCount.error`)."""

SERVER_PENDING = 2_000
"""Activities, and signals to others, that one workflow waits for at a time (`limit.numPendingActivities.error` and its siblings)."""

SERVER_SEARCH_ATTRIBUTE_BYTES = 2 * _KIB
"""The value of one search attribute (`limit.searchAttributesSizeOfValue`)."""

SERVER_SUMMARY_BYTES = 400
"""The summary of an activity, a timer or a workflow (`limit.userMetadataSummarySize`)."""

# --- our own ----------------------------------------------------------------------------------------------------------------------------

CODEC_BYTES = _KIB
"""What encryption may add to a payload."""

PAYLOAD_BYTES_MAX = _MIB - CODEC_BYTES
"""One payload that we send: an argument, a result, a query answer, a memo."""

REQUEST_BYTES_MAX = 2 * _MIB - CODEC_BYTES
"""All payloads that we send in one request, such as the commands of one workflow task."""

MANIFEST_BYTES_MAX = 256 * _KIB
"""A manifest at admission. What is made from it goes through several messages, each with more beside it."""

# The braces, the field names and the other fields of a message around a list.
_ENVELOPE_BYTES = 4 * _KIB

LIST_BYTES_MAX = PAYLOAD_BYTES_MAX - _ENVELOPE_BYTES
"""The items of a list that is most of a payload."""

CARRIED_BYTES_MAX = REQUEST_BYTES_MAX - 64 * _KIB
"""What a run hands over to the next one, in several payloads. The rest is for the memo and what else is in that request."""

ItemT = TypeVar("ItemT")


class TooLargeToSend(ValueError):
    """One item alone is larger than a payload may be."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        """Name the item, with its size and the limit in bytes."""
        super().__init__(f"{what} is {size} bytes of JSON; at most {limit} can be sent")
        self.what = what
        self.size = size
        self.limit = limit


def wire_size(value: Any) -> int:
    """Give the size of a value as the payload converter writes it, in bytes."""
    return len(to_json(value))


def shortened(text: str, bytes_max: int) -> str:
    """Give a text for people in at most so many bytes of UTF-8; an ellipsis shows that it goes on."""
    data = text.encode()
    if len(data) <= bytes_max:
        return text
    return data[: bytes_max - len("…".encode())].decode(errors="ignore") + "…"


def split_by_size(
    items: Iterable[ItemT],
    *,
    name: Callable[[ItemT], str],
    bytes_max: int = LIST_BYTES_MAX,
    count_max: int | None = None,
    size: Callable[[ItemT], int] = wire_size,
) -> list[list[ItemT]]:
    """Split items into batches, in order, each of at most `bytes_max` as a JSON list and of at most `count_max` items.

    All batches are made before the first is given, so that nothing is sent of a sequence that cannot be sent whole.

    Raises:
        TooLargeToSend: one item alone is larger than `bytes_max`; `name` gives what the error calls it.

    """
    batches: list[list[ItemT]] = []
    total = bytes_max + 1
    for item in items:
        # Two brackets, and a comma before every item but the first.
        weight = size(item) + 1
        if weight + 1 > bytes_max:
            raise TooLargeToSend(name(item), weight - 1, bytes_max)
        if total + weight > bytes_max or len(batches[-1]) == count_max:
            batches.append([])
            total = 1
        batches[-1].append(item)
        total += weight
    return batches
