"""The operations on objects that work both at Temporal and through the front.

The interface has no operation that only Temporal supports. Code that needs one calls
`temporal` with the name of the feature, which the error shows if commands use the
front.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from api_types.resources.kinds import KindInfo
from fleet_client.refs.seen import Execution, ListedObject
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree

if TYPE_CHECKING:  # slow to import, and the front does not need temporalio
    from api_types.messages.entities import Delete, RetryNow, Scale, SetSpec
    from fleet_client.temporal.control_plane import ControlPlane


class FleetObjects(Protocol):
    """Objects of the fleet.

    Every method raises `Unreachable`, and through the front `Forbidden`. A write is
    applied when `describe` shows the id of its request in `appliedRequestIds`. The id
    is in `changingRequestIds` too if the request changed the manifest.
    """

    def temporal(self, why: str) -> ControlPlane:
        """Return the connection to Temporal.

        Raise `Refused` if there is none. `why` completes the message "this command
        needs Temporal: ".
        """
        ...

    async def describe(self, target: Target) -> Tree:
        """Return the object as its manifest with status.

        Raise `NotFound` or `NoAnswer`.
        """
        ...

    async def find(self, target: Target) -> Tree | None:
        """Return the object, or None if it does not exist. Raise `NoAnswer`."""
        ...

    async def exists(self, target: Target) -> bool:
        """Return whether the object exists."""
        ...

    async def last_state(self, target: Target) -> Tree | None:
        """Return the object as it is, or as it was when it ended. None if unknown."""
        ...

    async def list(
        self, kind: KindInfo, namespace: str | None, *, deployment: str = ""
    ) -> Sequence[ListedObject]:
        """Return all objects of a kind, sorted by namespace and name.

        Namespace None means all.
        """
        ...

    async def waiting(self, target: Target) -> Sequence[str]:
        """Return the conditions that block the object, one sentence each.

        Raise `NotFound` or `NoAnswer`.
        """
        ...

    async def execution(self, target: Target) -> Execution:
        """Return the page of the object's workflow, and its failing steps."""
        ...

    async def set_spec(self, target: Target, message: SetSpec) -> None:
        """Create the object or change it."""
        ...

    async def check_spec(self, target: Target, message: SetSpec) -> None:
        """Check `set_spec` without doing it.

        Raise the errors of `set_spec`. The object's workflow may still refuse the spec.
        """
        ...

    async def change_spec(self, target: Target, message: SetSpec, read: Tree) -> None:
        """Change the object that `read` shows.

        Raise `NotFound`, and `Modified` if the object is known to have changed since.
        """
        ...

    async def scale(self, target: Target, message: Scale) -> None:
        """Set the replica count. Raise `NotFound`."""
        ...

    async def retry(self, target: Target, message: RetryNow) -> None:
        """Retry failed steps of the object now. Raise `NotFound`."""
        ...

    async def revisions(self, target: Target) -> Sequence[Tree]:
        """Return the earlier templates of a deployment.

        Each has `generation` and `template`. Raise `NotFound` or `NoAnswer`.
        """
        ...

    async def delete(self, target: Target, message: Delete) -> None:
        """Request deletion. Raise `NotFound`."""
        ...
