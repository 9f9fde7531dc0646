"""The objects of a cluster at its cloud as a graph, with the calls that create them.

The parameters of a call are the arguments of the cloud's client. Two kinds of values
are unknown beforehand: a value that another object reports once it exists (`Fact`), and
the token by which the cloud recognizes a repeated call (`Token`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from api_types.messages.clouds import CLUSTER_KEY


@dataclass(frozen=True)
class Fact:
    """A value that the object with this key reports, such as its id. Facts are text."""

    key: str
    name: str = "id"


@dataclass(frozen=True)
class Token:
    """The token of the call, equal for every attempt to create one object."""


Value = str | int | bool | Fact | Token | Sequence["Value"] | Mapping[str, "Value"]
Parameters = dict[str, Value]


@dataclass(frozen=True)
class CloudCall:
    """One call that creates an object or a part of it.

    `facts` maps the names that other calls use to paths in the response.
    """

    service: str
    operation: str
    parameters: Mapping[str, Value]
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Machines:
    """Machines of one type, with their initial and maximum number over all zones."""

    type: str
    region: str
    start: int
    most: int


@dataclass(frozen=True)
class DesiredObject:
    """One object that a cluster needs. Objects inside the cluster have no calls."""

    key: str
    kind: str
    name: str
    needs: tuple[str, ...]
    calls: tuple[CloudCall, ...]
    waits_for: str
    """The state in which the object is ready, as the cloud names it."""
    machines: Machines | None = None


def creation_order(objects: Sequence[DesiredObject]) -> list[DesiredObject]:
    """Return each object after all objects that it needs, otherwise in the given order.

    Raises ValueError for a needed key that does not exist, for a cycle, and for two
    objects with one key.
    """
    keys = {each.key for each in objects}
    if len(keys) < len(objects):
        raise ValueError("two objects have the same key")
    missing = list[str]()
    for each in objects:
        missing += [f"{each.key} needs {key}" for key in each.needs if key not in keys]
    if missing:
        raise ValueError(f"no such object: {', '.join(missing)}")
    ordered: list[DesiredObject] = []
    done: set[str] = set()
    waiting = list(objects)
    while waiting:
        ready = next((each for each in waiting if done.issuperset(each.needs)), None)
        if ready is None:
            raise ValueError(
                f"objects need each other: {', '.join(each.key for each in waiting)}"
            )
        waiting.remove(ready)
        ordered.append(ready)
        done.add(ready.key)
    return ordered


def deletion_order(objects: Sequence[DesiredObject]) -> list[DesiredObject]:
    """Return each object before all objects that it needs.

    Objects that the control plane needs come after it. Raises the errors of
    `creation_order`.
    """
    created = creation_order(objects)
    above = {CLUSTER_KEY}
    for each in created:
        if not above.isdisjoint(each.needs):
            above.add(each.key)
    newest_first = created[::-1]
    return [each for each in newest_first if each.key in above] + [
        each for each in newest_first if each.key not in above
    ]


def arguments(
    call: CloudCall, fact: Callable[[Fact], str], token: str
) -> dict[str, Any]:
    """Return the arguments of a call with facts and token filled in.

    `fact` resolves facts. Its errors are raised.
    """

    def filled(value: Value) -> Any:
        if isinstance(value, Fact):
            return fact(value)
        if isinstance(value, Token):
            return token
        if isinstance(value, Mapping):
            return {key: filled(item) for key, item in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, str):
            return [filled(item) for item in value]
        return value

    return {key: filled(value) for key, value in call.parameters.items()}
