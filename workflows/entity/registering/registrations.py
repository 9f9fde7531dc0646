"""Which registration at an object is the newest of its sender.

A worker that hangs may send one after its sender has sent newer ones by another worker. A user that left would be registered again, and
hold up the deletion of the object for ever; or what is used now would not be known.
"""

from collections.abc import Collection

from api_types.messages.versions import Version
from workflows.entity.arguments import UnusableMessage

# Of so many senders that are registered no longer the last registration is kept. Messages are late by seconds.
ENDED_KEPT = 256

# A state is carried in one payload. Ten thousand clusters with names of usual length register within this.
REGISTERED_BYTES_MAX = 512 * 1024


def is_newest(known: dict[str, Version], sender: str, uid: str, sequence: int) -> bool:
    """Tell whether a registration is the newest of its sender, and remember it; the same one again is.

    Raises `UnusableMessage` for one more sender than there is room for.
    """
    version = known.get(sender, Version())
    if sender not in known and sum(map(len, known)) + len(sender) > REGISTERED_BYTES_MAX:
        raise UnusableMessage(f"{sender[:100]}: cannot be registered: the names of the others take {REGISTERED_BYTES_MAX} bytes")
    if not version.accepts(uid, sequence):
        return False
    # The newest is last.
    known.pop(sender, None)
    known[sender] = version.advanced(uid, sequence)
    return True


def drop_ended(known: dict[str, Version], registered: Collection[str]) -> None:
    """Keep the newest of those who are registered no longer."""
    ended = [sender for sender in known if sender not in registered]
    for sender in ended[:-ENDED_KEPT]:
        del known[sender]
