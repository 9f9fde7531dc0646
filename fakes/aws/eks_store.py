"""The objects of EKS: clusters and their parts.

An object changes its state after some reads.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

CREATING = "CREATING"
ACTIVE = "ACTIVE"
UPDATING = "UPDATING"
DELETING = "DELETING"
FAILED = "FAILED"
CREATE_FAILED = "CREATE_FAILED"
DELETE_FAILED = "DELETE_FAILED"
DEGRADED = "DEGRADED"

BORN = 1_700_000_000
"""The creation time of every object, in seconds since 1970. The fake reads no clock."""


@dataclass
class EksObject:
    """An object of EKS.

    `body` is the answer of describing it. `then` runs after `reads` more reads.
    """

    body: dict[str, Any]
    reads: int = 0
    then: Callable[[], None] | None = None
    interfaces: list[str] = field(default_factory=list)
    """The network interfaces that belong to it, by id."""
    vanishes_in: int | None = None

    @property
    def status(self) -> str:
        """Its state."""
        return str(self.body.get("status", ACTIVE))

    def become(self, status: str) -> None:
        """Change the state, and drop the scheduled effect."""
        self.body["status"], self.then, self.reads = status, None, 0

    def plan(self, reads: int, then: Callable[[], None]) -> None:
        """Schedule an effect after some reads, or run it at once for 0."""
        self.reads, self.then = reads, then
        if reads <= 0:
            self.happen()

    def read(self) -> None:
        """Count a read, and run a due effect."""
        if self.vanishes_in is not None:
            self.vanishes_in -= 1
        if self.then is None:
            return
        if self.reads > 0:
            self.reads -= 1
        else:
            self.happen()

    def happen(self) -> None:
        """Run the scheduled effect now."""
        planned, self.then = self.then, None
        if planned is not None:
            planned()


@dataclass
class EksClusterObject(EksObject):
    """A control plane, and its parts by name, ARN or id."""

    group: str = ""
    node_groups: dict[str, EksObject] = field(default_factory=dict)
    add_ons: dict[str, EksObject] = field(default_factory=dict)
    entries: dict[str, EksObject] = field(default_factory=dict)
    policies: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    identities: dict[str, EksObject] = field(default_factory=dict)
    updates: dict[str, EksObject] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.body["name"])

    @property
    def version(self) -> str:
        """Its version of Kubernetes."""
        return str(self.body["version"])

    @property
    def has_nodes(self) -> bool:
        """Whether there are nodes for pods."""
        return any(
            each.status in (ACTIVE, UPDATING) for each in self.node_groups.values()
        )


@dataclass
class EksStore:
    """The clusters, a counter for ids, and node groups of left Auto Scaling groups."""

    clusters: dict[str, EksClusterObject] = field(default_factory=dict)
    left: dict[str, EksObject] = field(default_factory=dict)
    made: int = 0

    def digits(self, length: int = 17) -> str:
        """Return hexadecimal digits for a new id."""
        self.made += 1
        return hashlib.sha256(str(self.made).encode()).hexdigest()[:length]

    def items(self) -> Iterator[tuple[str, EksObject]]:
        """Yield every object with a descriptive name."""
        for name, cluster in self.clusters.items():
            yield f"cluster/{name}", cluster
            for kind, items in (
                ("nodegroup", cluster.node_groups),
                ("addon", cluster.add_ons),
                ("access-entry", cluster.entries),
                ("podidentityassociation", cluster.identities),
            ):
                yield from (
                    (f"{kind}/{name}/{key}", item) for key, item in items.items()
                )
