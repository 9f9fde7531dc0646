"""The newest message of each reporting object, to detect late messages."""

from collections.abc import Mapping
from typing import Any

from api_types.limits import FLEET_OBJECTS_MAX
from api_types.messages.versions import MessageVersion

# The number of deleted objects that are remembered, so that their late messages are
# detected.
ENDED_KEPT = 1_024


class KnownVersions:
    """Versions by name. Only the newest deleted objects are kept."""

    def __init__(self) -> None:
        self._present: dict[str, MessageVersion] = {}
        self._ended: dict[str, MessageVersion] = {}

    def __getitem__(self, name: str) -> MessageVersion:
        return self._present.get(name) or self._ended.get(name) or MessageVersion()

    def has_room(self, name: str) -> bool:
        """Return whether a name is known, or there is room for another one.

        Clients could send names of missing objects without end.
        """
        return name in self._present or len(self._present) < FLEET_OBJECTS_MAX

    def accept(self, name: str, uid: str, sequence: int) -> bool:
        """Record a message; return False if it is older than the known one."""
        known = self[name]
        if not known.accepts(uid, sequence):
            return False
        self._ended.pop(name, None)
        self._present[name] = known.advanced(uid, sequence)
        return True

    def is_doubtful(self, name: str, uid: str) -> bool:
        """Return whether an earlier object of this name may have sent a message."""
        return self[name].is_doubtful(uid)

    def settle(self, name: str, uid: str) -> bool:
        """Record the uid that the workflow of an object reported.

        Return True if another object, or a deleted one, was known under this name.
        """
        known, was_doubtful = self[name], self.is_doubtful(name, uid)
        if known.uid != uid:
            self._ended.pop(name, None)
            superseded = [
                other for other in known.advanced(uid, 0).superseded if other != uid
            ]
            self._present[name] = MessageVersion(uid=uid, superseded=superseded)
        return was_doubtful or known.replaced_by(uid)

    def end(self, name: str, uid: str) -> bool:
        """Record a deleted object.

        Return False if another object has its name by now.
        """
        known = self[name]
        ended = known.ended(uid)
        if ended.uid:
            self._present[name] = ended
            return False
        self._present.pop(name, None)
        self._ended.pop(name, None)
        self._ended[name] = ended
        while len(self._ended) > ENDED_KEPT:
            del self._ended[next(iter(self._ended))]
        return True

    def wire(self) -> dict[str, Any]:
        """Return the state as a JSON tree."""
        return {
            "present": {
                name: version.wire() for name, version in self._present.items()
            },
            "ended": {name: version.wire() for name, version in self._ended.items()},
        }

    def load(self, tree: Mapping[str, Any]) -> None:
        """Load the state that `wire` returned."""
        self._present = {
            name: MessageVersion.model_validate(version)
            for name, version in tree.get("present", {}).items()
        }
        self._ended = {
            name: MessageVersion.model_validate(version)
            for name, version in tree.get("ended", {}).items()
        }
