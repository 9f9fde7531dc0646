"""One request that writes, or tries to, as the audit log tells of it: a line of JSON for each message about an object."""

import json
from dataclasses import dataclass, field
from typing import Any

from api_types.clock import utc_now
from front.audit.changes import differences
from front.audit.escaped import fitting

Tree = dict[str, Any]

LINE_BYTES_MAX = 128 * 1024
"""Of a line: nine texts and 64 groups of 512 bytes, and 64 changes with a path and two values."""
_GROUPS_MAX = 64


@dataclass
class Change:
    """A message that was sent to the workflow of an object. `after` is None while it is not known to be carried out, or the object is gone.

    `request_id` is also in `status.lastScale` of the object.
    """

    request_id: str
    before: Tree | None
    after: Tree | None = None


@dataclass
class AuditEvent:
    """A request: who, what about, and what was sent for it. What is not known, as of a caller without a token, is empty.

    `omitted`: of a line in place of those of several requests, how many they are.
    """

    id: str
    method: str
    path: str
    address: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    verb: str = ""
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    dry_run: bool = False
    omitted: int = 0
    received: str = field(default_factory=lambda: utc_now().isoformat(timespec="milliseconds").replace("+00:00", "Z"))
    changes: dict[str, list[Change]] = field(default_factory=dict)

    def sends(self, name: str, request_id: str, before: Tree | None) -> Change:
        """Note that a message about an object is sent now; one of an earlier attempt, which was refused, is replaced."""
        carried_out = [change for change in self.changes.get(name, ()) if change.after is not None]
        self.changes[name] = [*carried_out, Change(request_id, before)]
        return self.changes[name][-1]

    def not_sent(self, name: str) -> None:
        """Note that there was no object that could have got the message."""
        del self.changes[name]

    def lines(self, code: int, outcome: str) -> bytes:
        """Write it with the answer that it got. `code`: of HTTP, 0 for a request that was interrupted."""
        entries = [self._line(name, change, code, outcome) for name, changes in self.changes.items() for change in changes]
        return b"".join(entries or [self._line(self.name, None, code, outcome)])

    def _line(self, name: str, change: Change | None, code: int, outcome: str) -> bytes:
        told: Tree = {
            "time": self.received,
            "id": self.id,
            "user": fitting(self.user),
            "groups": [fitting(group) for group in self.groups[:_GROUPS_MAX]],
            "address": fitting(self.address),
            "method": fitting(self.method),
            "path": fitting(self.path),
            "verb": fitting(self.verb),
            "group": fitting(self.group),
            "resource": fitting(self.resource),
            "namespace": fitting(self.namespace),
            "name": fitting(name),
            "dryRun": self.dry_run,
            "code": code,
            "outcome": outcome,
        }
        if self.omitted:
            told["omitted"] = self.omitted
        if change:
            told |= {"requestId": change.request_id, "before": _version(change.before), "after": _version(change.after)}
            if change.after is not None:
                told["changes"], omitted = differences(change.before, change.after)
                told |= {"changesOmitted": omitted} if omitted else {}
        # ASCII: no text of a request ends a line, or controls a terminal.
        return json.dumps(told, separators=(",", ":")).encode() + b"\n"


def _version(tree: Tree | None) -> str:
    return str(tree["metadata"].get("resourceVersion") or "") if tree else ""
