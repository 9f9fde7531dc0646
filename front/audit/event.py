"""The audit event of a write request: one line of JSON per message to an object."""

import json
from dataclasses import dataclass, field
from typing import Any

from api_types.clock import utc_now
from front.audit.changes import differences
from front.audit.escaped import fitting

Tree = dict[str, Any]

LINE_BYTES_MAX = 128 * 1024
"""The maximum size of a line in bytes.

It fits nine texts and 64 groups of 512 bytes each, and 64 changes with a path and two
values.
"""
_GROUPS_MAX = 64


@dataclass
class Change:
    """A message to the workflow of an object.

    `after` is None if the result is unknown or the object is gone. `request_id` also
    appears in the object's `status.lastScale`.
    """

    request_id: str
    before: Tree | None
    after: Tree | None = None


@dataclass
class AuditEvent:
    """A write request with its user, its object, and the messages that were sent.

    Unknown values, such as the user of an unauthenticated request, are empty. In a
    summary line, `omitted` is the number of requests without lines.
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
    received: str = field(
        default_factory=lambda: (
            utc_now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        )
    )
    changes: dict[str, list[Change]] = field(default_factory=dict)

    def sends(self, name: str, request_id: str, before: Tree | None) -> Change:
        """Record a message that is about to be sent.

        The message replaces a rejected message of an earlier attempt.
        """
        carried_out = [
            change for change in self.changes.get(name, ()) if change.after is not None
        ]
        self.changes[name] = [*carried_out, Change(request_id, before)]
        return self.changes[name][-1]

    def not_sent(self, name: str) -> None:
        """Remove a message, because there was no object to receive it."""
        del self.changes[name]

    def lines(self, code: int, outcome: str) -> bytes:
        """Return the lines for the log.

        `code` is the HTTP status, or 0 if the request was interrupted.
        """
        entries: list[bytes] = []
        for name, changes in self.changes.items():
            entries += [self._line(name, change, code, outcome) for change in changes]
        return b"".join(entries or [self._line(self.name, None, code, outcome)])

    def _line(self, name: str, change: Change | None, code: int, outcome: str) -> bytes:
        line: Tree = {
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
            line["omitted"] = self.omitted
        if change:
            line |= {
                "requestId": change.request_id,
                "before": _version(change.before),
                "after": _version(change.after),
            }
            if change.after is not None:
                line["changes"], omitted = differences(change.before, change.after)
                if omitted:
                    line["changesOmitted"] = omitted
        # ASCII output, so that no text of a request can end a line or control a
        # terminal.
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _version(tree: Tree | None) -> str:
    return str(tree["metadata"].get("resourceVersion") or "") if tree else ""
