"""The newest registration of each sender at an object.

A hanging worker may send a registration after another worker has sent newer ones. Then
a former user would be registered again and block the deletion of the object, or a
present user would be unknown.
"""

from collections.abc import Collection

from api_types.messages.versions import MessageVersion
from workflows.entity.arguments import UnusableMessage

# The number of unregistered senders whose last registration is kept. Late messages
# arrive within seconds.
ENDED_KEPT = 256

# One payload carries the state. Ten thousand clusters with names of usual length fit.
REGISTERED_BYTES_MAX = 512 * 1024


def is_newest(
    known: dict[str, MessageVersion], sender: str, uid: str, sequence: int
) -> bool:
    """Record a registration, and return whether it is the newest of its sender.

    A repetition of the newest registration counts as the newest. Raises
    `UnusableMessage` if there is no room for another sender.
    """
    version = known.get(sender, MessageVersion())
    if (
        sender not in known
        and sum(map(len, known)) + len(sender) > REGISTERED_BYTES_MAX
    ):
        raise UnusableMessage(
            f"{sender[:100]} cannot be registered: the names of the registered senders "
            f"take {REGISTERED_BYTES_MAX} bytes; unregister others first"
        )
    if not version.accepts(uid, sequence):
        return False
    # Sort the newest to the end.
    known.pop(sender, None)
    known[sender] = version.advanced(uid, sequence)
    return True


def drop_ended(known: dict[str, MessageVersion], registered: Collection[str]) -> None:
    """Keep only the newest registrations of unregistered senders."""
    ended = [sender for sender in known if sender not in registered]
    for sender in ended[:-ENDED_KEPT]:
        del known[sender]
