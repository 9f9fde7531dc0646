"""The handler of node groups."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from activities.clouds.desired.owner import SYSTEM_POOL
from activities.clouds.desired.versions import minor_of
from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.handlers.base import (
    AwsHandler,
    Item,
    issues_error,
    issues_text,
    tags_of,
)
from activities.clouds.eks.handlers.control_plane import VERSION
from activities.clouds.eks.handlers.health import health_of
from activities.clouds.eks.handlers.updates import Updates
from activities.clouds.eks.handlers.zones import (
    note_zones_without_machines,
    zones_of,
    zones_without_machines,
)
from activities.clouds.eks.texts import zones_without_capacity
from activities.clouds.eks.wanted.control_plane import CLUSTER
from activities.clouds.eks.wanted.node_groups import SYSTEM_KEY
from activities.clouds.lifecycle.handler import (
    ABSENT,
    CloudObservation,
    ObjectWork,
    State,
)
from api_types import labels
from api_types.errors import (
    Busy,
    CapacityUnavailable,
    CloudObjectBroken,
    Dependency,
    ModelplaneError,
    PermissionDenied,
)
from api_types.messages.clouds import CloudAccount

_STATES = {
    "CREATING": State.PENDING,
    "UPDATING": State.PENDING,
    # A degraded group exists and can be changed. Its health names the problem.
    "DEGRADED": State.READY,
    "ACTIVE": State.READY,
    "CREATE_FAILED": State.BROKEN,
    "DELETE_FAILED": State.BROKEN,
    "DELETING": State.DELETING,
}
_LABELS, _TAINTS, _COUNTS, _TEMPLATE = "labels", "taints", "counts", "launch template"
_STRATEGY = "update strategy"
_DEGRADED = "DEGRADED"
# Fact of a group whose capacity block has not begun: it has no nodes until then.
_BEFORE_BLOCK = "beforeBlock"
_IN_CONFIG = (_LABELS, _TAINTS, _COUNTS, _STRATEGY)


class NodegroupHandler(AwsHandler):
    """A node group.

    The autoscaler changes its current size, so the size is never a difference.
    """

    def __init__(self, clients: AwsClients, account: CloudAccount) -> None:
        super().__init__(clients, account)
        self._updates = Updates()

    def look(self, wanted: ObjectWork) -> CloudObservation:
        """Find the group by name, and compare all parameters of its create call."""
        group = self._described(wanted, wanted.object.name)
        if group is None:
            return ABSENT
        if foreign := self.not_ours_inside(group, "nodegroupArn", wanted):
            return foreign
        name, status, version = (
            wanted.object.name,
            str(group["status"]),
            str(group.get("version", "")),
        )
        state = _STATES.get(status, State.PENDING)
        facts = {"id": name, VERSION: version}
        if any(map(_is_before_block, self.expected(wanted, "create_nodegroup"))):
            facts[_BEFORE_BLOCK] = "true"
        issues = group.get("health", {}).get("issues", ())
        if state is State.BROKEN:
            launches = self._launches(group)
            words = issues_text(issues)
            # The scaling group often repeats the message of EKS.
            more = "" if launches in words else launches
            reason = "; ".join(filter(None, (f"status {status}", words, more)))
            # The scaling group gives the reason that EKS may leave out.
            texts = [
                {**each, "message": f"{each.get('message', '')} {launches}"}
                for each in issues
            ]
            return CloudObservation(
                state, name, facts, reason, cause=issues_error(texts)
            )
        if state is not State.READY:
            reason = ": ".join(filter(None, (f"status {status}", issues_text(issues))))
            return CloudObservation(state, name, facts, reason)
        changes, replaces = self._compared(wanted, group)
        differs = State.DIFFERS if changes or replaces else State.READY
        return CloudObservation(
            differs,
            name,
            facts,
            issues_text(issues) or _there(group, replaces) or _left_out(group),
            tuple(changes),
            tuple(replaces),
            health=health_of(status, issues),
        )

    def create(self, wanted: ObjectWork) -> None:
        """Create the group in the zones that have machines for it.

        One zone without machines fails a whole group, although its nodes in other zones
        run (https://github.com/aws/containers-roadmap/issues/2204).
        """
        call, zones = wanted.object.calls[0], zones_of(wanted)
        given = self.filled(call, wanted, {})
        short = zones_without_machines(self.clients, wanted)
        subnets = [each for each in given["subnets"] if zones.get(each) not in short]
        if subnets and len(subnets) < len(given["subnets"]):
            left_out = {labels.CLOUD_ZONES_WITHOUT_MACHINES: " ".join(sorted(short))}
            tags = {**given["tags"], **left_out}
            given = {**given, "subnets": subnets, "tags": tags}
        self.clients.create(call.service, call.operation, **given)

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Start one change, because EKS accepts one at a time.

        Counts, labels and taints change together. Template and version change after
        that.
        """
        who = {"clusterName": wanted.owner.base, "nodegroupName": wanted.object.name}
        group = self._described(wanted, wanted.object.name)
        calls = self.expected(wanted, "create_nodegroup")
        if group is None or not calls:
            return
        title = f"node group {wanted.object.name}"
        if group.get("status") == _DEGRADED:
            # EKS refuses changes of such a group, and would only answer that it is in use.
            issues = group.get("health", {}).get("issues", ())
            error = issues_error(issues) or CloudObjectBroken
            raise error(
                f"EKS changes {title} when it is no longer {_DEGRADED}: {issues_text(issues)}"
            )
        if any(each in _IN_CONFIG for each in found.changes):
            self._updates.order(
                self.clients,
                "update_nodegroup_config",
                title,
                who,
                **_config(
                    calls[0], group, found.changes, begins=_begins(wanted, calls[0])
                ),
            )
            return
        change: dict[str, Any] = {}
        if VERSION in found.changes:
            self._wait_for_system(wanted)
            change[VERSION] = wanted.known[CLUSTER][VERSION]
        if "launchTemplate" in calls[0]:
            change["launchTemplate"] = calls[0]["launchTemplate"]
        self._updates.order(
            self.clients, "update_nodegroup_version", title, who, **change
        )

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Delete the group with its nodes.

        The next group leaves out the zones in which this one found no machines. Raises
        Busy while EKS rejects the deletion because the group is created or
        changed.
        """
        if found.cause is CapacityUnavailable:
            # Without this permission the next group tries all zones again.
            with contextlib.suppress(PermissionDenied):
                note_zones_without_machines(
                    self.clients, wanted, zones_without_capacity(found.reason)
                )
        try:
            self.clients.delete(
                "eks",
                "delete_nodegroup",
                clusterName=wanted.owner.base,
                nodegroupName=wanted.object.name,
            )
        except Dependency as error:
            if found.state is State.PENDING:
                raise Busy(error.message) from None
            raise

    def _described(self, wanted: ObjectWork, name: str) -> Item | None:
        answer = self.clients.read(
            "eks",
            "describe_nodegroup",
            clusterName=wanted.owner.base,
            nodegroupName=name,
        )
        group: Item | None = answer.get("nodegroup")
        return group

    def _compared(self, wanted: ObjectWork, group: Item) -> tuple[list[str], list[str]]:
        """Return the mutable differences, and the immutable ones."""
        kubernetes = wanted.known.get(CLUSTER, {}).get(VERSION, "")
        changes = (
            [VERSION]
            if 0 < minor_of(str(group.get("version", ""))) < minor_of(kubernetes)
            else []
        )
        replaces: list[str] = []
        for call in self.expected(wanted, "create_nodegroup"):
            begins = _begins(wanted, call)
            if _scaling(call, group["scalingConfig"], begins=begins):
                changes.append(_COUNTS)
            if call.get("labels", {}) != (group.get("labels") or {}):
                changes.append(_LABELS)
            if _taints(call) != _taints(group):
                changes.append(_TAINTS)
            if _strategy(call) != _strategy(group):
                changes.append(_STRATEGY)
            template, there = call.get("launchTemplate"), group.get("launchTemplate")
            if (
                template
                and there
                and str(template["version"]) != str(there.get("version"))
            ):
                changes.append(_TEMPLATE)
            replaces += _replaced(call, group, zones_of(wanted))
        return changes, replaces

    def _wait_for_system(self, wanted: ObjectWork) -> None:
        """Raise Busy until the system node group is upgraded."""
        if wanted.object.key == SYSTEM_KEY:
            return
        system = self._described(wanted, SYSTEM_POOL)
        version = wanted.known[CLUSTER][VERSION]
        if system and minor_of(str(system.get("version", ""))) < minor_of(version):
            raise Busy(
                f"node group {wanted.object.name} is upgraded to {version} after node group "
                f"{SYSTEM_POOL}"
            )

    def _launches(self, group: Item) -> str:
        """Return why machines could not be launched, as the scaling group reports.

        Returns an empty string if the credential may not read the scaling group.
        """
        names = [
            str(each["name"])
            for each in group.get("resources", {}).get("autoScalingGroups", ())
        ]
        try:
            for name in names:
                listed = self.clients.read(
                    "autoscaling",
                    "describe_scaling_activities",
                    AutoScalingGroupName=name,
                    MaxRecords=10,
                )
                for activity in listed.get("Activities", ()):
                    if activity.get("StatusCode") in ("Failed", "Cancelled"):
                        return str(activity.get("StatusMessage", ""))[:500]
        except ModelplaneError:
            return ""
        return ""


def _left_out(group: Item) -> str:
    """Return the zones that the group does without, or ""."""
    zones = tags_of(group, "tags").get(labels.CLOUD_ZONES_WITHOUT_MACHINES, "")
    return f"without {zones}, which had no machines" if zones else ""


def _there(group: Item, replaces: Sequence[str]) -> str:
    """Describe the immutable fields that differ."""
    values = {
        "instance type": "instanceTypes",
        "disk size": "diskSize",
        "image type": "amiType",
        "capacity type": "capacityType",
    }
    shown = [
        f"{name} is {group.get(values[name])}" for name in replaces if name in values
    ]
    if replaces and not shown:
        return "it has others"
    return ", ".join(shown)


def _replaced(
    call: Mapping[str, Any], group: Item, zones: Mapping[str, str]
) -> Iterator[str]:
    """Yield the differences that EKS cannot change.

    `zones` are the zones of the subnets by id.
    """
    if bool(call.get("launchTemplate")) != bool(group.get("launchTemplate")):
        yield "use of a launch template"
        return
    if "instanceTypes" in call and call["instanceTypes"] != group.get("instanceTypes"):
        yield "instance type"
    if "diskSize" in call and call["diskSize"] != group.get("diskSize"):
        yield "disk size"
    if call["amiType"] != group.get("amiType"):
        yield "image type"
    capacity_type = group.get("capacityType") or "ON_DEMAND"
    if call.get("capacityType", "ON_DEMAND") != capacity_type:
        yield "capacity type"
    left_out = (
        tags_of(group, "tags").get(labels.CLOUD_ZONES_WITHOUT_MACHINES, "").split()
    )
    wanted = {each for each in call["subnets"] if zones.get(each) not in left_out}
    if wanted != set(group.get("subnets") or ()):
        yield "zones"


def _is_before_block(call: Mapping[str, Any]) -> bool:
    """Return True if the desired group waits for the start of its capacity block."""
    return (
        call.get("capacityType") == "CAPACITY_BLOCK"
        and call["scalingConfig"]["desiredSize"] == 0
    )


def _begins(wanted: ObjectWork, call: Mapping[str, Any]) -> bool:
    """Return True if the capacity block of a group has begun since its last look."""
    known = wanted.known.get(wanted.object.key, {})
    return _BEFORE_BLOCK in known and not _is_before_block(call)


def _scaling(
    call: Mapping[str, Any], there: Mapping[str, int], *, begins: bool
) -> dict[str, int]:
    """Return the counts to set, or none if they are as desired.

    The size is set only if it is fixed, or outside of the bounds, or if the capacity
    block of the group begins.
    """
    wanted: Mapping[str, int] = call["scalingConfig"]
    least, most, size = wanted["minSize"], wanted["maxSize"], there["desiredSize"]
    bounds = {"minSize": least, "maxSize": most}
    if labels.FIXED_SIZE in call.get("tags", {}) and size != wanted["desiredSize"]:
        return {**bounds, "desiredSize": wanted["desiredSize"]}
    if begins and size < wanted["desiredSize"]:
        return {**bounds, "desiredSize": wanted["desiredSize"]}
    if not least <= size <= most:
        return {**bounds, "desiredSize": max(least, min(size, most))}
    return {} if all(there[at] == value for at, value in bounds.items()) else bounds


def _taints(group: Item) -> set[tuple[str, str, str]]:
    return {
        (str(each["key"]), str(each.get("value", "")), str(each["effect"]))
        for each in group.get("taints") or ()
    }


def _strategy(group: Item) -> str:
    """Return the order in which an update ends old nodes and starts new ones."""
    return str(group.get("updateConfig", {}).get("updateStrategy", "DEFAULT"))


def _config(
    call: Mapping[str, Any], group: Item, changes: Sequence[str], *, begins: bool
) -> dict[str, Any]:
    """Return the update of counts, labels, taints and the update strategy.

    Labels and taints are sent as differences.
    """
    found: dict[str, Any] = {}
    if _COUNTS in changes:
        found["scalingConfig"] = _scaling(call, group["scalingConfig"], begins=begins)
    if _STRATEGY in changes:
        found["updateConfig"] = call["updateConfig"]
    if _LABELS in changes:
        wanted, there = dict(call.get("labels", {})), dict(group.get("labels") or {})
        found["labels"] = {
            "addOrUpdateLabels": {
                key: value for key, value in wanted.items() if there.get(key) != value
            },
            "removeLabels": sorted(set(there) - set(wanted)),
        }
    if _TAINTS in changes:
        found["taints"] = {
            "addOrUpdateTaints": [
                _taint(each) for each in sorted(_taints(call) - _taints(group))
            ],
            "removeTaints": [
                _taint(each) for each in sorted(_taints(group) - _taints(call))
            ],
        }
    return found


def _taint(parts: tuple[str, str, str]) -> dict[str, str]:
    return dict(zip(("key", "value", "effect"), parts, strict=True))
