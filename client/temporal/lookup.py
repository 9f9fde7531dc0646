"""The objects that the arguments and the label selector of a command refer to."""

from collections.abc import Sequence

from api_types.resources.kinds import KindInfo
from client.errors import NotFound
from client.refs.selectors import Selector
from client.refs.targets import Target
from client.refs.tree import labels
from client.temporal.control_plane import ControlPlane, ListedObject

KindsAndNames = Sequence[tuple[KindInfo, str | None]]


async def find_objects(
    plane: ControlPlane, wanted: KindsAndNames, namespace: str | None, selector: Selector
) -> tuple[list[ListedObject], list[NotFound]]:
    """Give the objects of whole kinds, in a namespace or (None) in all, and the named ones; and an error for each that does not exist."""
    found: list[ListedObject] = []
    missing: list[NotFound] = []
    for kind, name in wanted:
        if name is None:
            found += [one for one in await plane.list(kind, namespace) if selector(labels(one.tree))]
            continue
        named = Target.of(kind, namespace, name)
        try:
            found.append(ListedObject(named, await plane.describe(named)))
        except NotFound as failure:
            missing.append(failure)
    return found, missing
