"""The objects that a teardown left behind, as lines for people."""

from client.output.tables import NONE, columns
from fleet_client.objects import FleetObjects
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree

_LEFT_FIELDS = ("location", "kind", "namespace", "name", "reason")
_LEFT_TITLES = ["WHERE", "KIND", "NAMESPACE", "NAME", "WHY"]


async def print_left_behind(plane: FleetObjects, target: Target) -> None:
    """Print what a finished deletion left behind, and nothing if it left nothing.

    A front keeps no deleted objects, so through a front nothing is printed.
    """
    tree = await plane.last_state(target)
    if tree and (tree.get("status") or {}).get("leftBehind"):
        print(target.label, "\n".join(left_behind(tree)), flush=True)


def left_behind(tree: Tree | None) -> list[str]:
    """Return lines about the objects that a teardown left behind, sorted by cluster."""
    if tree is None:
        return ["may have left objects behind: no worker answers for it"]
    items = (tree.get("status") or {}).get("leftBehind") or ()
    left = sorted(
        items,
        key=lambda item: tuple(str(item.get(field, "")) for field in _LEFT_FIELDS),
    )
    if not left:
        return ["left nothing behind"]
    rows = [[str(item.get(field) or NONE) for field in _LEFT_FIELDS] for item in left]
    return [
        f"left {len(left)} object{'s' if len(left) > 1 else ''} behind:",
        *(f"  {line}" for line in columns(_LEFT_TITLES, rows)),
    ]
