"""The state of the fake: one project, with every object under its full name.

Objects of compute are JSON documents, all others the messages of their API. One table for all of them makes one place for what every
service needs: an object that is not visible yet, one that vanishes, and what remains in the end.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from testbed.clouds.gcp.calls.faults import Fault
from testbed.clouds.gcp.calls.ledger import Ledger
from testbed.clouds.gcp.calls.script import Script
from testbed.clouds.gcp.calls.tokens import Tokens
from testbed.clouds.gcp.services.gke.capacity import Capacity
from testbed.clouds.gcp.services.operations import Operations

ENABLED_AT_FIRST = (
    "cloudresourcemanager.googleapis.com",
    "compute.googleapis.com",
    "container.googleapis.com",
    "iam.googleapis.com",
    "serviceusage.googleapis.com",
)
"""The APIs that the project begins with. That of Filestore is not among them."""


class Endpoint(NamedTuple):
    """Where a cluster's API server listens: `host:port` without a scheme, and its CA as base64 of PEM."""

    host: str
    ca: str


NO_ENDPOINT = Endpoint("192.0.2.10", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t")
"""What a cluster answers that no API server was given for: an address that leads nowhere."""


@dataclass
class Binding:
    """One role of the project, and who has it."""

    role: str
    members: list[str]


@dataclass
class Policy:
    """Who may do what in the project; `version` becomes the etag."""

    bindings: list[Binding] = field(default_factory=list)
    version: int = 1

    def members(self, role: str) -> list[str]:
        """Give who has a role."""
        return [member for binding in self.bindings if binding.role == role for member in binding.members]

    def pairs(self) -> set[tuple[str, str]]:
        """Give role and member of each binding."""
        return {(binding.role, member) for binding in self.bindings for member in binding.members}

    def add(self, role: str, member: str) -> None:
        """Give a role to a member."""
        self.version += 1
        binding = next((each for each in self.bindings if each.role == role), None)
        if binding is None:
            self.bindings.append(Binding(role, [member]))
        elif member not in binding.members:
            binding.members.append(member)


class World:
    """All state of one fake, without a lock: `Dispatcher` lets one call in at a time."""

    def __init__(self, project: str, reads: int, page_size: int, tokens: Tokens) -> None:
        self.project = project
        self.page_size = page_size
        self.tokens = tokens
        self.token_uri = ""
        self.ledger = Ledger()
        self.script = Script()
        self.capacity = Capacity()
        self.operations = Operations(reads)
        self.objects: dict[str, Any] = {}
        self.hidden: dict[str, int] = {}
        self.requests: dict[tuple[str, str, str], str] = {}
        """The operation that a call with a request id began, by method, target and id."""
        self.enabled: set[str] = set(ENABLED_AT_FIRST)
        self.denied: set[str] = set()
        self.keys_barred = False
        self.first_sizes: dict[str, int] = {}
        self.shows_first_sizes = False
        """Whether a pool goes on to show the size that it was created with."""
        self.policy = Policy()
        self.endpoint: Callable[[str], Endpoint] = lambda _: NO_ENDPOINT
        self.met: list[Fault] = []
        """The faults that the call in progress meets."""
        self.repeated = False
        """Whether the call in progress was recognized by its request id, and so had no effect of its own."""
        self._numbers = 0
        self._first_objects: set[str] = set()
        self._first_pairs: set[tuple[str, str]] = set()

    @property
    def root(self) -> str:
        """Give the name of the project as a parent."""
        return f"projects/{self.project}"

    def number(self) -> int:
        """Give a number that no other object has."""
        self._numbers += 1
        return self._numbers

    def now(self) -> datetime:
        """Give the time, for what says when it was created."""
        return datetime.fromtimestamp(time.time(), UTC)

    def visible(self, name: str) -> Any | None:
        """Give an object as a read sees it; one that is hidden still is None, and one read nearer to be seen."""
        left = self.hidden.get(name, 0)
        if left > 0:
            self.hidden[name] = left - 1
            return None
        return self.objects.get(name)

    def below(self, prefix: str) -> list[str]:
        """Give the names of the visible objects that begin with this, in order; what is hidden comes one read nearer."""
        return [name for name in sorted(self.objects) if name.startswith(prefix) and self.visible(name) is not None]

    def remove(self, name: str) -> None:
        """Delete an object and all that is part of it, such as the pools of a cluster and the keys of an account."""
        for each in [each for each in self.objects if each == name or each.startswith(f"{name}/")]:
            del self.objects[each]
            self.hidden.pop(each, None)

    def keep_as_first(self) -> None:
        """Count all that is there now as what the project began with."""
        self._first_objects = set(self.objects)
        self._first_pairs = self.policy.pairs()

    def remains(self) -> list[str]:
        """Give what is there and was not at the beginning: objects by full name, bindings as `<project>/policy/<role>/<member>`.

        An API that was enabled is none of it: it stays so.
        """
        bindings = [f"{self.root}/policy/{role}/{member}" for role, member in self.policy.pairs() - self._first_pairs]
        return sorted([*(set(self.objects) - self._first_objects), *bindings])
