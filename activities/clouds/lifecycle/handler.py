"""The operations of a cloud on one kind of object.

Handlers make no decisions and do not wait.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from activities.clouds.desired.graph import DesiredObject, Fact
from activities.clouds.desired.owner import ClusterOwner
from api_types.errors import ModelplaneError, NotYet


class State(StrEnum):
    ABSENT = "Absent"
    PENDING = "Pending"
    READY = "Ready"
    DIFFERS = "Differs"
    BROKEN = "Broken"
    DELETING = "Deleting"
    FOREIGN = "Foreign"


@dataclass(frozen=True)
class HealthIssue:
    """A problem that the cloud reports of an existing object.

    - `error`: the error type that decides the next step of a person.
    - `code`: the cloud's code of the problem, or its name of the state.
    - `text`: the words of the cloud, with the code.
    - `lacks_nodes`: the cloud does not provide all nodes, if the object is a pool.
    """

    error: type[ModelplaneError]
    code: str
    text: str
    lacks_nodes: bool = False


@dataclass(frozen=True)
class CloudObservation:
    """The observed state of an object.

    - `facts`: values that other objects need.
    - `reason`: the reason for the state, as the cloud words it.
    - `changes`: the mutable fields that differ; `replaces`: the immutable ones.
    - `duplicates`: the ids of further objects with the same owner and key.
    - `cause`: the error to raise, with `reason`, if the object is permanently Broken,
      or Absent and cannot be created again.
    - `uncertain`: the look-up may have missed the object, because the cloud lists new
      objects late.
    - `health`: a problem of the object that no change of Modelplane can solve.
    - `unmarked`: the missing owner mark and the command that restores it, if the object
      is Foreign but its name or id shows that this cluster created it.
    - `shared`: the reason why an object in use does not belong to this cluster, so that
      a deletion keeps it.
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
    health: HealthIssue | None = None
    unmarked: str = ""
    shared: str = ""


ABSENT = CloudObservation(State.ABSENT)


@dataclass(frozen=True)
class ObjectWork:
    """One object to work on.

    `known` has the facts of all existing objects by key, including this one if it
    existed before. `token` makes a repeated call safe: it is equal for all attempts of
    one epoch.
    """

    owner: ClusterOwner
    object: DesiredObject
    known: Mapping[str, Mapping[str, str]]
    token: str
    epoch: int = 0
    attempt: int = 1

    @property
    def known_id(self) -> str:
        """The id of the object, or an empty string if it was never observed."""
        return self.known.get(self.object.key, {}).get("id", "")

    @property
    def is_known(self) -> bool:
        """Whether the object was ever observed."""
        return self.object.key in self.known

    def fact(self, fact: Fact) -> str:
        """Return a fact of another object.

        Raises NotYet if it is unknown, so that nothing is created without it.
        """
        value = self.known.get(fact.key, {}).get(fact.name, "")
        if not value:
            raise NotYet(
                f"{self.object.key} needs the {fact.name} of {fact.key}, which is not known "
                "yet"
            )
        return value


class ObjectHandler(Protocol):
    """One kind of object at one cloud.

    Every method is idempotent and raises only the errors of `api_types.errors`. The
    methods block, and run in a thread.
    """

    def look(self, wanted: ObjectWork) -> CloudObservation:
        """Find the object by its id, name or owner mark, and compare it.

        This changes nothing.
        """

    def create(self, wanted: ObjectWork) -> None:
        """Create the object, after none was found.

        An object that exists nevertheless is a success.
        """

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Change the fields that differ, in place."""

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Start the deletion of the object, or of the duplicate with the id of `found`.

        A missing object is a success. Raises Dependency.
        """
