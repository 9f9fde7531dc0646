"""The objects that the arguments and the label selector of a command refer to."""

from collections.abc import Sequence
from typing import NamedTuple

from api_types.hints import nearest
from api_types.resources.kinds import KindInfo
from fleet_client.errors import CommandFailed, Forbidden, NotFound
from fleet_client.objects import FleetObjects
from fleet_client.refs.seen import ListedObject
from fleet_client.refs.selectors import ObjectSelection
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import labels

KindsAndNames = Sequence[tuple[KindInfo, str | None]]


class LookupResult(NamedTuple):
    """The objects, and the errors about others.

    `missing` has an error for each named object that does not exist. `hidden` has one
    for each kind that the user may not list, if they may list others.
    """

    objects: list[ListedObject]
    missing: list[NotFound]
    hidden: list[CommandFailed]


async def find_objects(
    objects: FleetObjects,
    wanted: KindsAndNames,
    namespace: str | None,
    selection: ObjectSelection,
) -> LookupResult:
    """Return the named objects, and the selected objects of kinds without names.

    `namespace` None means all namespaces. Raise `Forbidden` or `Unreachable`.
    """
    found = LookupResult([], [], [])
    for kind, name in wanted:
        if name is None:
            try:
                found.objects.extend(
                    one
                    for one in await objects.list(kind, namespace)
                    if selection.selects(one.target, labels(one.tree))
                )
            except Forbidden as failure:
                found.hidden.append(failure)
            continue
        named = Target.of(kind, namespace, name)
        try:
            found.objects.append(ListedObject(named, await objects.describe(named)))
        except NotFound as failure:
            found.missing.append(await with_nearest(objects, named, failure))
    if found.hidden and len(found.hidden) == len(wanted):
        raise found.hidden[0]
    return found


async def with_nearest(
    objects: FleetObjects, target: Target, failure: NotFound
) -> NotFound:
    """Return the error about an object, with the most similar name of its kind.

    Return it unchanged if no name is similar, or if the names cannot be listed.
    """
    try:
        known = await objects.list(target.kind, target.namespace or None)
    except CommandFailed:
        return failure
    close = nearest(target.name, [one.target.name for one in known])
    if not close:
        return failure
    return NotFound(
        failure.message,
        details=[*failure.details, f"did you mean {close}?"],
        next_step=failure.next_step,
    )
