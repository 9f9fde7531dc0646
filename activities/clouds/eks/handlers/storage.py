"""The handlers of the caches' EFS file system and its mount targets.

Tags are copied when a file system is restored from a backup, and other users may set
them, so they do not prove that Modelplane created a file system. The creation token
does, because no other file system can get it later.
"""

from collections.abc import Mapping

from activities.clouds.desired.owner import ClusterOwner
from activities.clouds.desired.wire import to_wire
from activities.clouds.eks.handlers.base import AwsHandler, Item, tags_of, unmarked
from activities.clouds.eks.handlers.zones import EFS, refuse_zones, zones_of
from activities.clouds.eks.wanted.storage import FILE_SYSTEM, file_system
from activities.clouds.lifecycle.handler import (
    ABSENT,
    CloudObservation,
    ObjectWork,
    State,
)
from activities.clouds.lifecycle.tokens import token_of
from api_types import labels
from api_types.errors import InvalidInput, ModelplaneError

_STATES = {
    "creating": State.PENDING,
    "available": State.READY,
    "updating": State.READY,
    "deleting": State.DELETING,
    "error": State.BROKEN,
}
# The maximum number of times that the file system is recreated.
_EPOCHS_MAX = 64
# A file system that never contained a file has a size of a few KiB.
_EMPTY_BYTES_MAX = 64 * 1024
_UNSUPPORTED = "UnsupportedAvailabilityZone"


class FileSystemHandler(AwsHandler):
    """The file system. It is never changed."""

    def look(self, wanted: ObjectWork) -> CloudObservation:
        """Find the file system by its tags and its token.

        A second file system that contains data is not a duplicate.
        """
        items = file_systems(self, wanted)
        if not items:
            return self._without_tags(wanted)
        ids = [str(item["FileSystemId"]) for item in items]
        used = next(
            (item for item in items if item.get("NumberOfMountTargets")), items[0]
        )
        kept = items[ids.index(wanted.known_id)] if wanted.known_id in ids else used
        identity = str(kept["FileSystemId"])
        state = _STATES.get(str(kept["LifeCycleState"]), State.PENDING)
        reason = f"state {kept['LifeCycleState']}" if state is not State.READY else ""
        spare = tuple(
            str(item["FileSystemId"])
            for item in items
            if item is not kept and _is_empty(item)
        )
        return CloudObservation(
            state, identity, {"id": identity}, reason, duplicates=spare
        )

    def _without_tags(self, wanted: ObjectWork) -> CloudObservation:
        """Return a file system that lost its tags as Foreign, or Absent."""
        for item in created_for(self, wanted):
            identity = str(item["FileSystemId"])
            reason = f"{identity} has lost its tag {labels.CLOUD_OWNER}"
            return unmarked(self.marked("efs", identity), tags_of(item), wanted, reason)
        return ABSENT

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Delete the file system with its data.

        Raises Dependency while it has mount targets.
        """
        del wanted
        self.clients.delete("efs", "delete_file_system", FileSystemId=found.id)


class MountTargetsHandler(AwsHandler):
    """All mount targets as one object, with one target in each private subnet."""

    def look(self, wanted: ObjectWork) -> CloudObservation:
        """List the mount targets of the file system, and compare them with the subnets."""
        system = self._file_system(wanted)
        items = self._listed(system)
        if not items:
            return ABSENT
        facts = {"id": system}
        states = {str(item["LifeCycleState"]) for item in items}
        there = {str(item["SubnetId"]) for item in items}
        missing = [
            call["SubnetId"]
            for call in self.expected(wanted, "create_mount_target")
            if call["SubnetId"] not in there
        ]
        if states == {"deleting"}:
            return CloudObservation(State.DELETING, system, facts, "state deleting")
        if "error" in states:
            return CloudObservation(State.BROKEN, system, facts, "state error")
        if missing:
            return CloudObservation(
                State.DIFFERS,
                system,
                facts,
                changes=tuple(f"mount target in {subnet}" for subnet in missing),
            )
        pending = sorted(states - {"available", "updating"})
        return CloudObservation(
            State.PENDING if pending else State.READY,
            system,
            facts,
            f"state {pending[0]}" if pending else "",
        )

    def create(self, wanted: ObjectWork) -> None:
        """Create a mount target in each subnet.

        Raises PlanOutdated if EFS rejects a zone, after marking the zone.
        """
        refused = list[str]()
        for call in wanted.object.calls:
            try:
                self.run(call, wanted, {})
            except InvalidInput as error:
                subnet = str(self.filled(call, wanted, {})["SubnetId"])
                zone = zones_of(wanted).get(subnet, "")
                if _UNSUPPORTED not in error.message or not zone:
                    raise
                refused.append(zone)
        if refused:
            refuse_zones(self.clients, wanted, EFS, refused)

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Create the missing mount targets. An existing one is a success."""
        del found
        self.create(wanted)

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Delete each mount target, even if the deletion of another one fails."""
        del found
        refused: ModelplaneError | None = None
        for item in self._listed(self._file_system(wanted)):
            if item["LifeCycleState"] not in ("deleting", "deleted"):
                try:
                    self.clients.delete(
                        "efs",
                        "delete_mount_target",
                        MountTargetId=item["MountTargetId"],
                    )
                except ModelplaneError as error:
                    refused = error
        if refused is not None:
            raise refused

    def _file_system(self, wanted: ObjectWork) -> str:
        """Return the id of the file system, or "" if there is none."""
        known = wanted.known.get(FILE_SYSTEM, {}).get("id", "")
        items = [] if known else file_systems(self, wanted)
        return known or (str(items[0]["FileSystemId"]) if items else "")

    def _listed(self, system: str) -> list[Item]:
        if not system:
            return []
        listed = self.clients.listed(
            "efs", "describe_mount_targets", "MountTargets", FileSystemId=system
        )
        return [item for item in listed if item["LifeCycleState"] != "deleted"]


def file_systems(handler: AwsHandler, wanted: ObjectWork) -> list[Item]:
    """List the file systems that were created for the cluster and have its tags, by id."""
    marks = {labels.CLOUD_OWNER: wanted.owner.digits, labels.CLOUD_OBJECT: FILE_SYSTEM}
    return [
        item
        for item in created_for(handler, wanted)
        if marks.items() <= tags_of(item).items()
    ]


def created_for(handler: AwsHandler, wanted: ObjectWork) -> list[Item]:
    """List the file systems that were created for the cluster, by id."""
    listed = handler.clients.listed("efs", "describe_file_systems", "FileSystems")
    ours = creation_tokens(wanted.owner) | {wanted.token}
    known = wanted.known.get(FILE_SYSTEM, {}).get("id", "")
    found = [
        item
        for item in listed
        if item["LifeCycleState"] != "deleted" and was_created(item, known, ours)
    ]
    return sorted(found, key=lambda item: str(item["FileSystemId"]))


def creation_tokens(owner: ClusterOwner) -> frozenset[str]:
    """Return the possible creation tokens of a cluster's file system."""
    digest = to_wire(file_system(owner), "Quick").digest
    return frozenset(
        token_of(owner, FILE_SYSTEM, digest, epoch) for epoch in range(_EPOCHS_MAX)
    )


def was_created(item: Item, known_id: str, tokens: frozenset[str]) -> bool:
    """Return True if a file system is the known one, or has a token of this cluster.

    An earlier release may have created the known file system with another token.
    """
    return item["FileSystemId"] == known_id or item.get("CreationToken") in tokens


def _is_empty(item: Item) -> bool:
    size: Mapping[str, int] = item.get("SizeInBytes") or {}
    return int(size.get("Value", 0)) <= _EMPTY_BYTES_MAX and not item.get(
        "NumberOfMountTargets"
    )
