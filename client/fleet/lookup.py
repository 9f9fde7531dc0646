"""The objects that the arguments and the label selector of a command refer to."""

from collections.abc import Sequence
from typing import NamedTuple

from api_types.resources.kinds import KindInfo
from client.errors import CommandFailed, Forbidden, NotFound
from client.fleet.objects import Objects
from client.refs.selectors import Selector
from client.refs.targets import Target
from client.refs.tree import labels
from client.temporal.control_plane import ListedObject

KindsAndNames = Sequence[tuple[KindInfo, str | None]]


class Found(NamedTuple):
    """What was found.

    `missing`: an error for each named object that does not exist. `hidden`: one for each kind that the user may not list, while there are
    others that they may.
    """

    objects: list[ListedObject]
    missing: list[NotFound]
    hidden: list[CommandFailed]


async def find_objects(objects: Objects, wanted: KindsAndNames, namespace: str | None, selector: Selector) -> Found:
    """Give the objects of whole kinds, in a namespace or (None) in all, and the named ones. Raises `Forbidden`, `Unreachable`."""
    found = Found([], [], [])
    for kind, name in wanted:
        if name is None:
            try:
                found.objects.extend(one for one in await objects.list(kind, namespace) if selector(labels(one.tree)))
            except Forbidden as failure:
                found.hidden.append(failure)
            continue
        named = Target.of(kind, namespace, name)
        try:
            found.objects.append(ListedObject(named, await objects.describe(named)))
        except NotFound as failure:
            found.missing.append(failure)
    if found.hidden and len(found.hidden) == len(wanted):
        raise found.hidden[0]
    return found
