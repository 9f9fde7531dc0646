"""Temporal's size limits, this project's lower limits, and splitting of lists.

The server's behaviour was measured on server 1.29 with SDK 1.31. The SDK's own check of
payload sizes prevented none of these failures:

- One payload over 2 MiB: the server terminates the workflow whose task contains it
  (argument of an activity, result of a local activity, continue-as-new, result, memo).
  An activity's result fails the activity, a query fails, and the sender of a signal or
  a start gets an error.
- A search attribute over 2 KiB: the server terminates the workflow.
- Commands of one task over 4 MiB together, or more than 2,000 pending activities: the
  task fails, again and again.
- The argument of a local activity is never sent.

No retry helps in these cases. So every list that grows with a fleet goes through
`split_by_size` or is `packing.Compact`, and admission rejects objects that cannot be
split. The functions are pure, so that workflow code may call them. Not here: the sizes
of single fields, which are admission rules.

Sizes are the JSON sizes of the payload converter, in bytes. This project's limits use
half of the server's, to leave room for a payload codec and for the rest of the request.
`EncryptionCodec` adds less than 200 bytes to a payload; nothing compresses it.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from pydantic_core import to_json

_KIB = 1024
_MIB = 1024 * _KIB

# The limits of the server, with its dynamic configuration keys.

SERVER_PAYLOAD_BYTES = 2 * _MIB
"""One payload, or all payloads of one input, result, signal, memo or query response.

The keys are `limit.blobSize.error` and `limit.memoSize.error`.
"""

SERVER_MESSAGE_BYTES = 4 * _MIB
SERVER_HISTORY_BYTES = 50 * _MIB
"""One run; beyond it the server terminates the workflow (`limit.historySize.error`)."""

SERVER_HISTORY_EVENTS = 51_200
"""One run; beyond it the server terminates the workflow (`limit.historyCount.error`).
"""

SERVER_PENDING = 2_000
"""Pending activities of one workflow, and separately pending signals to others.

The keys are `limit.numPendingActivities.error` and its siblings.
"""

SERVER_SEARCH_ATTRIBUTE_BYTES = 2 * _KIB
SERVER_SUMMARY_BYTES = 400
# The limits of this project.

CODEC_BYTES = _KIB
"""The maximum overhead of encryption for a payload."""

PAYLOAD_BYTES_MAX = _MIB - CODEC_BYTES
"""One payload that this project sends: an argument, a result, a query response, a memo.
"""

REQUEST_BYTES_MAX = 2 * _MIB - CODEC_BYTES
"""All payloads in one request of this project, such as one workflow task's commands."""

MANIFEST_BYTES_MAX = 256 * _KIB
"""A manifest at admission.

Several messages carry data derived from it, each with other data.
"""

# The braces, the field names and the other fields of a message around a list.
_ENVELOPE_BYTES = 4 * _KIB

LIST_BYTES_MAX = PAYLOAD_BYTES_MAX - _ENVELOPE_BYTES
"""The items of a list that makes up most of a payload."""

CARRIED_BYTES_MAX = REQUEST_BYTES_MAX - 64 * _KIB
"""The state that a run carries over to the next run, in several payloads.

The rest of the request is for the memo and other fields.
"""

ItemT = TypeVar("ItemT")


class TooLargeToSend(ValueError):
    def __init__(self, what: str, size: int, limit: int) -> None:
        """Name the item, with its size and the limit in bytes."""
        super().__init__(f"{what} is {size} bytes of JSON; at most {limit} can be sent")
        self.what = what
        self.size = size
        self.limit = limit


def wire_size(value: Any) -> int:
    """Return the size in bytes of a value as the payload converter writes it."""
    return len(to_json(value))


def shortened(text: str, bytes_max: int) -> str:
    """Return a text, cut to a number of UTF-8 bytes; an ellipsis marks the cut."""
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
    """Split items into batches, in order.

    Each batch has at most `bytes_max` bytes as a JSON list and at most `count_max`
    items. All batches exist before the function returns, so that a caller sends no part
    of a sequence that cannot be sent whole.

    Args:
        items: the items.
        name: returns the name of an item for the error.
        bytes_max: the limit of a batch in bytes.
        count_max: the limit of a batch in items.
        size: returns the size of an item in bytes.

    Raises:
        TooLargeToSend: one item alone is larger than `bytes_max`.

    """
    batches: list[list[ItemT]] = []
    total = bytes_max + 1
    for item in items:
        # Two brackets, and a comma before every item except the first.
        weight = size(item) + 1
        if weight + 1 > bytes_max:
            raise TooLargeToSend(name(item), weight - 1, bytes_max)
        if total + weight > bytes_max or len(batches[-1]) == count_max:
            batches.append([])
            total = 1
        batches[-1].append(item)
        total += weight
    return batches
