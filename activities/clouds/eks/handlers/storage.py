"""The EFS file system of the caches, and its mount targets.

Tags are copied when a file system is restored from a backup, and anybody may set them: they do not say that it was created here. The token
of its creation does, which no other file system can get afterwards.
"""

from collections.abc import Mapping

from activities.clouds.eks.handlers.base import AwsHandler, Item, tags_of
from activities.clouds.eks.wanted.storage import FILE_SYSTEM, file_system
from activities.clouds.lifecycle.handler import ABSENT, Found, State, Wanted
from activities.clouds.lifecycle.tokens import token_of
from activities.clouds.owner import Owner
from activities.clouds.wire import to_wire
from api_types import labels
from api_types.errors import ModelplaneError

_STATES = {
    "creating": State.PENDING,
    "available": State.READY,
    "updating": State.READY,
    "deleting": State.DELETING,
    "error": State.BROKEN,
}
# It is seen gone and created again less often than that.
_EPOCHS_MAX = 64
# One that never had a file has some KiB.
_EMPTY_BYTES_MAX = 64 * 1024


class FileSystemHandler(AwsHandler):
    """The file system. Nothing of it is changed."""

    def look(self, wanted: Wanted) -> Found:
        """Find it by its tags and its token. A second one that holds data is no duplicate."""
        items = file_systems(self, wanted)
        if not items:
            return ABSENT
        ids = [str(item["FileSystemId"]) for item in items]
        used = next((item for item in items if item.get("NumberOfMountTargets")), items[0])
        kept = items[ids.index(wanted.known_id)] if wanted.known_id in ids else used
        identity = str(kept["FileSystemId"])
        state = _STATES.get(str(kept["LifeCycleState"]), State.PENDING)
        reason = f"state {kept['LifeCycleState']}" if state is not State.READY else ""
        spare = tuple(str(item["FileSystemId"]) for item in items if item is not kept and _is_empty(item))
        return Found(state, identity, {"id": identity}, reason, duplicates=spare)

    def delete(self, wanted: Wanted, found: Found) -> None:
        """Delete it with all that is stored. Raises Dependency while it has mount targets."""
        del wanted
        self.clients.delete("efs", "delete_file_system", FileSystemId=found.id)


class MountTargetsHandler(AwsHandler):
    """The mount targets as one object: one in each private subnet."""

    def look(self, wanted: Wanted) -> Found:
        """List those of the file system; what is missing is created."""
        system = self._file_system(wanted)
        items = self._listed(system)
        if not items:
            return ABSENT
        facts = {"id": system}
        states = {str(item["LifeCycleState"]) for item in items}
        there = {str(item["SubnetId"]) for item in items}
        missing = [call["SubnetId"] for call in self.expected(wanted, "create_mount_target") if call["SubnetId"] not in there]
        if states == {"deleting"}:
            return Found(State.DELETING, system, facts, "state deleting")
        if "error" in states:
            return Found(State.BROKEN, system, facts, "state error")
        if missing:
            return Found(State.DIFFERS, system, facts, changes=tuple(f"mount target in {subnet}" for subnet in missing))
        pending = sorted(states - {"available", "updating"})
        return Found(State.PENDING if pending else State.READY, system, facts, f"state {pending[0]}" if pending else "")

    def create(self, wanted: Wanted) -> None:
        """Create one in each subnet."""
        for call in wanted.object.calls:
            self.run(call, wanted, {})

    def update(self, wanted: Wanted, found: Found) -> None:
        """Create those that are missing; that one is there is success."""
        del found
        self.create(wanted)

    def delete(self, wanted: Wanted, found: Found) -> None:
        """Delete each, also when another one is refused."""
        del found
        refused: ModelplaneError | None = None
        for item in self._listed(self._file_system(wanted)):
            if item["LifeCycleState"] not in ("deleting", "deleted"):
                try:
                    self.clients.delete("efs", "delete_mount_target", MountTargetId=item["MountTargetId"])
                except ModelplaneError as error:
                    refused = error
        if refused is not None:
            raise refused

    def _file_system(self, wanted: Wanted) -> str:
        """Give the id of the file system; empty if there is none."""
        known = wanted.known.get(FILE_SYSTEM, {}).get("id", "")
        items = [] if known else file_systems(self, wanted)
        return known or (str(items[0]["FileSystemId"]) if items else "")

    def _listed(self, system: str) -> list[Item]:
        if not system:
            return []
        listed = self.clients.listed("efs", "describe_mount_targets", "MountTargets", FileSystemId=system)
        return [item for item in listed if item["LifeCycleState"] != "deleted"]


def file_systems(handler: AwsHandler, wanted: Wanted) -> list[Item]:
    """List the file systems with the tags of the cluster that were created for it, by id."""
    marks = {labels.CLOUD_OWNER: wanted.owner.digits, labels.CLOUD_OBJECT: FILE_SYSTEM}
    listed = handler.clients.listed("efs", "describe_file_systems", "FileSystems")
    tagged = [item for item in listed if item["LifeCycleState"] != "deleted" and marks.items() <= tags_of(item).items()]
    ours = creation_tokens(wanted.owner) | {wanted.token}
    known = wanted.known.get(FILE_SYSTEM, {}).get("id", "")
    found = [item for item in tagged if was_created(item, known, ours)]
    return sorted(found, key=lambda item: str(item["FileSystemId"]))


def creation_tokens(owner: Owner) -> frozenset[str]:
    """Give the tokens with which the file system of a cluster may have been created."""
    digest = to_wire(file_system(owner), "Quick").digest
    return frozenset(token_of(owner, FILE_SYSTEM, digest, epoch) for epoch in range(_EPOCHS_MAX))


def was_created(item: Item, known_id: str, tokens: frozenset[str]) -> bool:
    """Whether a file system is the known one, which an earlier release may have created, or has a token of ours."""
    return item["FileSystemId"] == known_id or item.get("CreationToken") in tokens


def _is_empty(item: Item) -> bool:
    size: Mapping[str, int] = item.get("SizeInBytes") or {}
    return int(size.get("Value", 0)) <= _EMPTY_BYTES_MAX and not item.get("NumberOfMountTargets")
