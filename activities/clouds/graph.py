"""The objects of a cluster at its cloud as a graph: which there are, what each needs, and the calls that create it.

The parameters of a call are the arguments of the cloud's client. Two things in them are not known before: what another object reports
when it is there (`Fact`), and the token by which the cloud recognizes a repeated call (`Token`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from api_types.messages.clouds import CLUSTER_KEY


@dataclass(frozen=True)
class Fact:
    """What the object with this key reports, such as its id. Facts are text."""

    key: str
    name: str = "id"


@dataclass(frozen=True)
class Token:
    """The token of the call: equal for every attempt to create one object."""


Value = str | int | bool | Fact | Token | Sequence["Value"] | Mapping[str, "Value"]
Parameters = dict[str, Value]


@dataclass(frozen=True)
class Call:
    """One call that creates an object or a part of it; `facts` are paths in the answer, by the names that other calls use."""

    service: str
    operation: str
    parameters: Mapping[str, Value]
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Machines:
    """Machines of one type that an object starts with, and how many it has at most, over all zones."""

    type: str
    region: str
    start: int
    most: int


@dataclass(frozen=True)
class DesiredObject:
    """One object that a cluster needs; an object without calls is kept by the control plane, not by the cloud."""

    key: str
    kind: str
    name: str
    needs: tuple[str, ...]
    calls: tuple[Call, ...]
    waits_for: str
    """When it is ready, in the words of the cloud."""
    machines: Machines | None = None


def creation_order(objects: Sequence[DesiredObject]) -> list[DesiredObject]:
    """Give each object after all that it needs, else in the order given. Raises ValueError for a key that is needed and not there.

    Also raises it for objects that need each other, and for two objects of one key.
    """
    keys = {each.key for each in objects}
    if len(keys) < len(objects):
        raise ValueError("two objects have the same key")
    if missing := [f"{each.key} needs {key}" for each in objects for key in each.needs if key not in keys]:
        raise ValueError(f"no such object: {', '.join(missing)}")
    ordered: list[DesiredObject] = []
    done: set[str] = set()
    waiting = list(objects)
    while waiting:
        ready = next((each for each in waiting if done.issuperset(each.needs)), None)
        if ready is None:
            raise ValueError(f"objects need each other: {', '.join(each.key for each in waiting)}")
        waiting.remove(ready)
        ordered.append(ready)
        done.add(ready.key)
    return ordered


def deletion_order(objects: Sequence[DesiredObject]) -> list[DesiredObject]:
    """Give each object before all that it needs, and what the control plane stands on after it. Raises ValueError as `creation_order`."""
    created = creation_order(objects)
    above = {CLUSTER_KEY}
    for each in created:
        if not above.isdisjoint(each.needs):
            above.add(each.key)
    newest_first = created[::-1]
    return [each for each in newest_first if each.key in above] + [each for each in newest_first if each.key not in above]


def arguments(call: Call, fact: Callable[[Fact], str], token: str) -> dict[str, Any]:
    """Give the arguments of a call with facts and token filled in; what `fact` raises for one that is not known is passed on."""

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
