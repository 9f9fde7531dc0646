"""Ways to break a workflow permanently, to show which other workflows wait for it."""

from enum import Enum

from temporalio.api.common.v1 import Payload

from api_types.payloads import unreadable


class Poison(Enum):
    """The defect of all runs of a workflow id.

    FAILING: each workflow task fails, as with a bug, a nondeterminism, or a carried
        state that cannot be decoded. The server accepts signals and answers no query.
    FULL: the server rejects signals, as for a run that has taken 10,000.
    SILENT: queries and updates get no answer, and activities that begin never end.
    UNREADABLE: the key of its payloads is lost, so signals, answers and the memo
        cannot be read.
    """

    FAILING = "failing"
    FULL = "full"
    SILENT = "silent"
    UNREADABLE = "unreadable"


def unreadable_payload(arrival: str) -> Payload:
    """Return the payload that a codec makes of a payload whose key it lacks."""
    metadata = {
        "encoding": unreadable.ENCODING,
        unreadable.PROBLEM: b"it is encrypted with a key that this process does not have",
        unreadable.ARRIVAL_ID: arrival.encode(),
    }
    return Payload(metadata=metadata)
