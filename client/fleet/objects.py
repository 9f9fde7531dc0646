"""What a command may do with objects whichever way it reaches them.

A command that takes `Objects` works at Temporal and through the front. What only Temporal can do is not here: who needs it asks for
`temporal`, and so says which part of a command does not work through the front.
"""

from collections.abc import Sequence
from typing import Protocol

from api_types.messages.entities import Delete, RetryNow, Scale, SetSpec
from api_types.resources.kinds import KindInfo
from client.refs.targets import Target
from client.refs.tree import Tree
from client.temporal.control_plane import ControlPlane, ListedObject
from client.temporal.execution import Execution


class Objects(Protocol):
    """Objects of the fleet. Every method raises `Unreachable`, and through the front `Forbidden`.

    What is written is applied when `describe` shows the id of its request (`appliedRequestIds`); those that changed the manifest are in
    `changingRequestIds` too.
    """

    def temporal(self, why: str) -> ControlPlane:
        """Give the connection to Temporal. Raises `Refused` where there is none; `why` completes `this command needs Temporal: `."""
        ...

    async def describe(self, target: Target) -> Tree:
        """Give the object as its manifest with status. Raises `NotFound`, `NoAnswer`."""
        ...

    async def find(self, target: Target) -> Tree | None:
        """Give the object, or None if it does not exist. Raises `NoAnswer`."""
        ...

    async def exists(self, target: Target) -> bool:
        """Whether the object exists."""
        ...

    async def list(self, kind: KindInfo, namespace: str | None, *, deployment: str = "") -> Sequence[ListedObject]:
        """Give all objects of a kind, sorted by namespace and name; `namespace` None means all."""
        ...

    async def waiting(self, target: Target) -> Sequence[str]:
        """Give what the object waits for, one sentence each. Raises `NotFound`, `NoAnswer`."""
        ...

    async def execution(self, target: Target) -> Execution:
        """Give the page of the object's workflow, and its failing steps, as far as they are known."""
        ...

    async def set_spec(self, target: Target, message: SetSpec) -> None:
        """Create the object or change it."""
        ...

    async def check_spec(self, target: Target, message: SetSpec) -> None:
        """Have `set_spec` checked without doing it, as far as anything but the object's workflow can. Raises what `set_spec` would."""
        ...

    async def change_spec(self, target: Target, message: SetSpec, read: Tree) -> None:
        """Change the object that was `read`. Raises `NotFound`, and `Modified` where it is known to have changed since."""
        ...

    async def scale(self, target: Target, message: Scale) -> None:
        """Set the replica count. Raises `NotFound`."""
        ...

    async def retry(self, target: Target, message: RetryNow) -> None:
        """Have failed steps of the object tried now. Raises `NotFound`."""
        ...

    async def revisions(self, target: Target) -> Sequence[Tree]:
        """Give the earlier templates of a deployment: `generation` and `template` each. Raises `NotFound`, `NoAnswer`."""
        ...

    async def delete(self, target: Target, message: Delete) -> None:
        """Request deletion. Raises `NotFound`."""
        ...
