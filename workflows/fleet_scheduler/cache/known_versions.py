"""The newest message of each object that reports to the scheduler, so that a late one changes nothing."""

from collections.abc import Mapping
from typing import Any

from api_types.limits import FLEET_OBJECTS_MAX
from api_types.messages.versions import Version

# Objects that are gone are remembered for as long as their messages may be late.
ENDED_KEPT = 1_024


class KnownVersions:
    """Versions by name. Of objects that are gone only the newest are kept."""

    def __init__(self) -> None:
        self._present: dict[str, Version] = {}
        self._ended: dict[str, Version] = {}

    def __getitem__(self, name: str) -> Version:
        return self._present.get(name) or self._ended.get(name) or Version()

    def has_room(self, name: str) -> bool:
        """Tell whether a name is known, or one more may be: names of objects that do not exist may be sent without end."""
        return name in self._present or len(self._present) < FLEET_OBJECTS_MAX

    def accept(self, name: str, uid: str, sequence: int) -> bool:
        """Take over a message; False if it is older than what is known."""
        known = self[name]
        if not known.accepts(uid, sequence):
            return False
        self._ended.pop(name, None)
        self._present[name] = known.advanced(uid, sequence)
        return True

    def is_doubtful(self, name: str, uid: str) -> bool:
        """Tell whether a message may be a late one of an earlier object of its name."""
        return self[name].is_doubtful(uid)

    def settle(self, name: str, uid: str) -> bool:
        """Take over which object of a name there is: its workflow has said so. True if another one was known, or one that is gone."""
        known, was_doubtful = self[name], self.is_doubtful(name, uid)
        if known.uid != uid:
            self._ended.pop(name, None)
            superseded = [other for other in known.advanced(uid, 0).superseded if other != uid]
            self._present[name] = Version(uid=uid, superseded=superseded)
        return was_doubtful or known.replaced_by(uid)

    def end(self, name: str, uid: str) -> bool:
        """Record that an object is gone; False if another one has its name by now."""
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
        """Give all as a JSON tree."""
        return {
            "present": {name: version.wire() for name, version in self._present.items()},
            "ended": {name: version.wire() for name, version in self._ended.items()},
        }

    def load(self, tree: Mapping[str, Any]) -> None:
        """Take over what `wire` gave."""
        self._present = {name: Version.model_validate(version) for name, version in tree.get("present", {}).items()}
        self._ended = {name: Version.model_validate(version) for name, version in tree.get("ended", {}).items()}
