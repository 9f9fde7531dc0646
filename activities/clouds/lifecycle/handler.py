"""What a cloud knows of one kind of object: how it is found, created, changed and deleted. Handlers decide nothing and wait for nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from activities.clouds.graph import DesiredObject, Fact
from activities.clouds.owner import Owner
from api_types.errors import ModelplaneError, NotYet


class State(StrEnum):
    """The states of one object (spec/provisioning.md 3.4)."""

    ABSENT = "Absent"
    PENDING = "Pending"
    READY = "Ready"
    DIFFERS = "Differs"
    BROKEN = "Broken"
    DELETING = "Deleting"
    FOREIGN = "Foreign"


@dataclass(frozen=True)
class Found:
    """An object as it was found. `facts` has what other objects need of it; `reason` is in the cloud's own words.

    `changes` are the fields that differ and can be changed in place, `replaces` those that cannot. `duplicates` are the ids of further
    objects with the same owner and key. `cause` is the error to report when it is Broken for good, or Absent and cannot be had again: with
    `reason`. `uncertain`: the look-up may have
    missed it, because the cloud lists late what was just created. `shared`: why it is not of this cluster, of one that is used all the same
    and that a deletion leaves.
    """

    state: State
    id: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    changes: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    cause: type[ModelplaneError] | None = None
    uncertain: bool = False
    shared: str = ""


ABSENT = Found(State.ABSENT)


@dataclass(frozen=True)
class Wanted:
    """One object to work on. `known` has the facts of all objects that are there, by key, of this one too if it was there before.

    `token` makes a repeated call safe: equal for all attempts of one epoch.
    """

    owner: Owner
    object: DesiredObject
    known: Mapping[str, Mapping[str, str]]
    token: str
    epoch: int = 0
    attempt: int = 1

    @property
    def known_id(self) -> str:
        """The id under which it was known; empty if it was not."""
        return self.known.get(self.object.key, {}).get("id", "")

    def fact(self, fact: Fact) -> str:
        """Give what another object reports. Raises NotYet for what is not known, so that nothing is created without it."""
        value = self.known.get(fact.key, {}).get(fact.name, "")
        if not value:
            raise NotYet(f"{self.object.key} needs the {fact.name} of {fact.key}, which is not known yet")
        return value


class Handler(Protocol):
    """One kind of object at one cloud. Every method may be called twice, and raises errors of `api_types.errors` only.

    The methods block: they are run in a thread.
    """

    def look(self, wanted: Wanted) -> Found:
        """Find it by its id, name or owner mark, and compare it with what is wanted. Changes nothing."""

    def create(self, wanted: Wanted) -> None:
        """Create it. That it exists is success. Called only when it was not found."""

    def update(self, wanted: Wanted, found: Found) -> None:
        """Change what differs in place."""

    def delete(self, wanted: Wanted, found: Found) -> None:
        """Begin to delete it, or the duplicate whose id `found` has. That it does not exist is success. Raises Dependency."""
