"""The state of the fake: one project, with every object by its full name.

Objects of compute are JSON documents, all others the messages of their API. They share
one table, so that hidden objects, vanishing objects and leftovers are implemented once.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from fakes.gcp.calls.faults import GcpFault
from fakes.gcp.calls.ledger import GcpLedger
from fakes.gcp.calls.script import GcpFaultScript
from fakes.gcp.calls.tokens import GcpTokens
from fakes.gcp.services.gke.capacity import GcpCapacity
from fakes.gcp.services.operations import Operations

ENABLED_AT_FIRST = (
    "cloudresourcemanager.googleapis.com",
    "compute.googleapis.com",
    "container.googleapis.com",
    "iam.googleapis.com",
    "serviceusage.googleapis.com",
)
"""The APIs that the project starts with. The API of Filestore is not among them."""


class GcpEndpoint(NamedTuple):
    """The address of a cluster's API server.

    It is `host:port` without a scheme, and the CA certificate as base64 of PEM.
    """

    host: str
    ca: str


NO_ENDPOINT = GcpEndpoint("192.0.2.10", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t")
"""The address of a cluster without an API server. It leads nowhere."""


@dataclass
class Binding:
    """One role of the project, and its members."""

    role: str
    members: list[str]


@dataclass
class Policy:
    """The policy of the project. `version` becomes the etag."""

    bindings: list[Binding] = field(default_factory=list)
    version: int = 1

    def members(self, role: str) -> list[str]:
        """Return the members of a role."""
        return [
            member
            for binding in self.bindings
            if binding.role == role
            for member in binding.members
        ]

    def pairs(self) -> set[tuple[str, str]]:
        """Yield role and member of each binding."""
        return {
            (binding.role, member)
            for binding in self.bindings
            for member in binding.members
        }

    def add(self, role: str, member: str) -> None:
        """Grant a role to a member."""
        self.version += 1
        binding = next((each for each in self.bindings if each.role == role), None)
        if binding is None:
            self.bindings.append(Binding(role, [member]))
        elif member not in binding.members:
            binding.members.append(member)


class World:
    """All state of one fake, without a lock: `Dispatcher` handles one call at a time."""

    def __init__(
        self, project: str, reads: int, page_size: int, tokens: GcpTokens
    ) -> None:
        self.project = project
        self.page_size = page_size
        self.tokens = tokens
        self.token_uri = ""
        self.ledger = GcpLedger()
        self.script = GcpFaultScript()
        self.capacity = GcpCapacity()
        self.operations = Operations(reads)
        self.objects: dict[str, Any] = {}
        self.hidden: dict[str, int] = {}
        self.requests: dict[tuple[str, str, str], str] = {}
        """The operation of a call with a request id, by method, target and id."""
        self.enabled: set[str] = set(ENABLED_AT_FIRST)
        self.denied: set[str] = set()
        self.limits: dict[str, frozenset[str]] = {}
        """The permissions of limited accounts. Other accounts have all."""
        self.caller = ""
        """The account of the running call."""
        self.keys_barred = False
        self.first_sizes: dict[str, int] = {}
        self.shows_first_sizes = False
        """Whether a pool keeps showing its initial size after a resize."""
        self.unreachable: set[str] = set()
        """The zones whose objects are missing in lists."""
        self.waiting_for_stock: set[str] = set()
        """The pools that get machines once their zones have them."""
        self.policy = Policy()
        self.endpoint: Callable[[str], GcpEndpoint] = lambda _: NO_ENDPOINT
        self.met: list[GcpFault] = []
        """The faults of the running call."""
        self.repeated = False
        """Whether the running call repeated a request id, and so had no effect of its
        own.
        """
        self._numbers = 0
        self._first_objects: set[str] = set()
        self._first_pairs: set[tuple[str, str]] = set()

    @property
    def root(self) -> str:
        """Return the name of the project as a parent."""
        return f"projects/{self.project}"

    def number(self) -> int:
        """Return a number that no other object has."""
        self._numbers += 1
        return self._numbers

    def now(self) -> datetime:
        """Return the time of a creation."""
        return datetime.fromtimestamp(time.time(), UTC)

    def visible(self, name: str) -> Any | None:
        """Return an object as a read sees it, or None while it is hidden.

        The read counts.
        """
        left = self.hidden.get(name, 0)
        if left > 0:
            self.hidden[name] = left - 1
            return None
        return self.objects.get(name)

    def below(self, prefix: str) -> list[str]:
        """Return the names of the visible objects with a prefix, in order.

        The read counts for hidden ones.
        """
        return [
            name
            for name in sorted(self.objects)
            if name.startswith(prefix) and self.visible(name) is not None
        ]

    def remove(self, name: str) -> None:
        """Delete an object with its parts.

        Parts are, for example, the pools of a cluster and the keys of an account.
        """
        for each in [
            each for each in self.objects if each == name or each.startswith(f"{name}/")
        ]:
            del self.objects[each]
            self.hidden.pop(each, None)

    def keep_as_first(self) -> None:
        """Mark all present objects as those of the start."""
        self._first_objects = set(self.objects)
        self._first_pairs = self.policy.pairs()

    def remains(self) -> list[str]:
        """Return the objects that did not exist at the start.

        Objects are listed by full name, bindings as `<project>/policy/<role>/<member>`.
        An API that was enabled does not count, because it stays enabled.
        """
        bindings = [
            f"{self.root}/policy/{role}/{member}"
            for role, member in self.policy.pairs() - self._first_pairs
        ]
        return sorted([*(set(self.objects) - self._first_objects), *bindings])
