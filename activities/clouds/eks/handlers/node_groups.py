"""Node groups, and their launch templates."""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.failures import issue_error
from activities.clouds.eks.handlers.base import AwsHandler, Item, issues_text, not_ours, tags_of
from activities.clouds.eks.handlers.control_plane import VERSION
from activities.clouds.eks.handlers.updates import Updates
from activities.clouds.eks.wanted.control_plane import CLUSTER
from activities.clouds.eks.wanted.node_groups import CARDS_FACT, SYSTEM_KEY
from activities.clouds.lifecycle.handler import ABSENT, Found, State, Wanted
from activities.clouds.owner import SYSTEM_POOL
from activities.clouds.versions import minor_of
from api_types import labels
from api_types.errors import Busy, Dependency, ModelplaneError
from api_types.messages.clouds import CloudAccount

_STATES = {
    "CREATING": State.PENDING,
    "UPDATING": State.PENDING,
    "DEGRADED": State.PENDING,
    "ACTIVE": State.READY,
    "CREATE_FAILED": State.BROKEN,
    "DELETE_FAILED": State.BROKEN,
    "DELETING": State.DELETING,
}
_LABELS, _TAINTS, _COUNTS, _TEMPLATE = "labels", "taints", "counts", "launch template"
# What EC2 may say of a disk or an interface though it was not asked for. No user data, image, snapshot, key or metadata options.
_DEFAULTS = {"DeleteOnTermination", "Description", "Encrypted", "Iops", "Throughput", "VolumeType"}
_IN_CONFIG = (_LABELS, _TAINTS, _COUNTS)


class NodegroupHandler(AwsHandler):
    """A node group. How many nodes it has now is of the autoscaler, and never a difference."""

    def __init__(self, clients: AwsClients, account: CloudAccount) -> None:
        super().__init__(clients, account)
        self._updates = Updates()

    def look(self, wanted: Wanted) -> Found:
        """Find it by its name; compare all that its create call says."""
        group = self._described(wanted, wanted.object.name)
        if group is None:
            return ABSENT
        if foreign := not_ours(tags_of(group, "tags"), wanted):
            return foreign
        name, status, version = wanted.object.name, str(group["status"]), str(group.get("version", ""))
        state = _STATES.get(status, State.PENDING)
        facts = {"id": name, VERSION: version}
        issues = group.get("health", {}).get("issues", ())
        if state is State.BROKEN:
            reason = "; ".join(text for text in (f"status {status}", issues_text(issues), self._launches(group)) if text)
            code = str(issues[0].get("code", "")) if issues else ""
            return Found(state, name, facts, reason, cause=issue_error(code, reason))
        if state is not State.READY:
            return Found(state, name, facts, ": ".join(text for text in (f"status {status}", issues_text(issues)) if text))
        changes, replaces = self._compared(wanted, group)
        differs = State.DIFFERS if changes or replaces else State.READY
        return Found(differs, name, facts, issues_text(issues) or _there(group, replaces), tuple(changes), tuple(replaces))

    def update(self, wanted: Wanted, found: Found) -> None:
        """Order one change: counts, labels and taints together, or else the template and the version. EKS makes one at a time."""
        who = {"clusterName": wanted.owner.base, "nodegroupName": wanted.object.name}
        group = self._described(wanted, wanted.object.name)
        calls = self.expected(wanted, "create_nodegroup")
        if group is None or not calls:
            return
        title = f"node group {wanted.object.name}"
        if any(each in _IN_CONFIG for each in found.changes):
            self._updates.order(self.clients, "update_nodegroup_config", title, who, **_config(calls[0], group, found.changes))
            return
        change: dict[str, Any] = {}
        if VERSION in found.changes:
            self._wait_for_system(wanted)
            change[VERSION] = wanted.known[CLUSTER][VERSION]
        if "launchTemplate" in calls[0]:
            change["launchTemplate"] = calls[0]["launchTemplate"]
        self._updates.order(self.clients, "update_nodegroup_version", title, who, **change)

    def delete(self, wanted: Wanted, found: Found) -> None:
        """Delete it with its nodes. Raises Busy where EKS refuses because it is created or changed."""
        try:
            self.clients.delete("eks", "delete_nodegroup", clusterName=wanted.owner.base, nodegroupName=wanted.object.name)
        except Dependency as error:
            if found.state is State.PENDING:
                raise Busy(error.message) from None
            raise

    def _described(self, wanted: Wanted, name: str) -> Item | None:
        answer = self.clients.read("eks", "describe_nodegroup", clusterName=wanted.owner.base, nodegroupName=name)
        group: Item | None = answer.get("nodegroup")
        return group

    def _compared(self, wanted: Wanted, group: Item) -> tuple[list[str], list[str]]:
        """Give what differs and can be changed, and what cannot."""
        kubernetes = wanted.known.get(CLUSTER, {}).get(VERSION, "")
        changes = [VERSION] if 0 < minor_of(str(group.get("version", ""))) < minor_of(kubernetes) else []
        replaces: list[str] = []
        for call in self.expected(wanted, "create_nodegroup"):
            if _scaling(call, group["scalingConfig"]):
                changes.append(_COUNTS)
            if call.get("labels", {}) != (group.get("labels") or {}):
                changes.append(_LABELS)
            if _taints(call) != _taints(group):
                changes.append(_TAINTS)
            template, there = call.get("launchTemplate"), group.get("launchTemplate")
            if template and there and str(template["version"]) != str(there.get("version")):
                changes.append(_TEMPLATE)
            replaces += _replaced(call, group)
        return changes, replaces

    def _wait_for_system(self, wanted: Wanted) -> None:
        """Let the nodes without GPUs go first. Raises Busy until they have."""
        if wanted.object.key == SYSTEM_KEY:
            return
        system = self._described(wanted, SYSTEM_POOL)
        if system and minor_of(str(system.get("version", ""))) < minor_of(wanted.known[CLUSTER][VERSION]):
            raise Busy(f"node group {wanted.object.name} gets version {wanted.known[CLUSTER][VERSION]} after node group {SYSTEM_POOL}")

    def _launches(self, group: Item) -> str:
        """Give why machines could not be launched, in the words of the scaling group; empty where that may not be asked."""
        names = [str(each["name"]) for each in group.get("resources", {}).get("autoScalingGroups", ())]
        try:
            for name in names:
                listed = self.clients.read("autoscaling", "describe_scaling_activities", AutoScalingGroupName=name, MaxRecords=10)
                for activity in listed.get("Activities", ()):
                    if activity.get("StatusCode") in ("Failed", "Cancelled"):
                        return str(activity.get("StatusMessage", ""))[:500]
        except ModelplaneError:
            return ""
        return ""


def _there(group: Item, replaces: Sequence[str]) -> str:
    """Say what a group has in what cannot be changed."""
    values = {"instance type": "instanceTypes", "disk size": "diskSize", "image type": "amiType", "capacity type": "capacityType"}
    return ", ".join(f"{name} is {group.get(values[name])}" for name in replaces if name in values) or ("it has others" if replaces else "")


def _replaced(call: Mapping[str, Any], group: Item) -> Iterator[str]:
    """Give what EKS never changes of a group."""
    if bool(call.get("launchTemplate")) != bool(group.get("launchTemplate")):
        yield "use of a launch template"
        return
    if "instanceTypes" in call and call["instanceTypes"] != group.get("instanceTypes"):
        yield "instance type"
    if "diskSize" in call and call["diskSize"] != group.get("diskSize"):
        yield "disk size"
    if call["amiType"] != group.get("amiType"):
        yield "image type"
    if call.get("capacityType", "ON_DEMAND") != (group.get("capacityType") or "ON_DEMAND"):
        yield "capacity type"
    if set(call["subnets"]) != set(group.get("subnets") or ()):
        yield "zones"


def _scaling(call: Mapping[str, Any], there: Mapping[str, int]) -> dict[str, int]:
    """Give the counts to set; none where they are as wanted. The size itself only where it is fixed, or outside of the bounds."""
    wanted: Mapping[str, int] = call["scalingConfig"]
    least, most, size = wanted["minSize"], wanted["maxSize"], there["desiredSize"]
    bounds = {"minSize": least, "maxSize": most}
    if labels.FIXED_SIZE in call.get("tags", {}) and size != wanted["desiredSize"]:
        return {**bounds, "desiredSize": wanted["desiredSize"]}
    if not least <= size <= most:
        return {**bounds, "desiredSize": max(least, min(size, most))}
    return {} if all(there[at] == value for at, value in bounds.items()) else bounds


def _taints(group: Item) -> set[tuple[str, str, str]]:
    return {(str(each["key"]), str(each.get("value", "")), str(each["effect"])) for each in group.get("taints") or ()}


def _config(call: Mapping[str, Any], group: Item, changes: Sequence[str]) -> dict[str, Any]:
    """Give the change of counts, labels and taints: labels and taints as differences."""
    found: dict[str, Any] = {}
    if _COUNTS in changes:
        found["scalingConfig"] = _scaling(call, group["scalingConfig"])
    if _LABELS in changes:
        wanted, there = dict(call.get("labels", {})), dict(group.get("labels") or {})
        found["labels"] = {
            "addOrUpdateLabels": {key: value for key, value in wanted.items() if there.get(key) != value},
            "removeLabels": sorted(set(there) - set(wanted)),
        }
    if _TAINTS in changes:
        found["taints"] = {
            "addOrUpdateTaints": [_taint(each) for each in sorted(_taints(call) - _taints(group))],
            "removeTaints": [_taint(each) for each in sorted(_taints(group) - _taints(call))],
        }
    return found


def _taint(parts: tuple[str, str, str]) -> dict[str, str]:
    return dict(zip(("key", "value", "effect"), parts, strict=True))


class LaunchTemplateHandler(AwsHandler):
    """A launch template. Another content is a new version, which groups name by its number.

    Who may write versions of a template is not who may have nodes replaced: the number of a version that has more, or something else, than
    what is wanted is never given to a group.
    """

    def look(self, wanted: Wanted) -> Found:
        """Find it by its name; compare its latest version."""
        template = self._described(wanted)
        if template is None:
            return ABSENT
        if foreign := not_ours(tags_of(template), wanted):
            return foreign
        identity, version = str(template["LaunchTemplateId"]), str(template["LatestVersionNumber"])
        facts = {"id": identity, VERSION: version}
        expected = self.expected(wanted, "create_launch_template")
        if not expected:
            return Found(State.READY, identity, facts)
        data, there = expected[0]["LaunchTemplateData"], self._content(identity, version)
        if cards := there.get("NetworkInterfaces"):
            facts[CARDS_FACT] = str(len(cards))
        if _contains(there, data):
            return Found(State.READY, identity, facts)
        before = wanted.known.get(wanted.object.key, {})
        kept = {name: before[name] for name in (VERSION, CARDS_FACT) if name in before}
        nodes = self._content(identity, before[VERSION]) if before.get(VERSION, version) != version else there
        if nodes.get("InstanceType") != data["InstanceType"]:
            # Of the nodes of a group too: EKS takes no other type for it.
            reason = f"instance type is {nodes.get('InstanceType')}"
            return Found(State.DIFFERS, identity, {"id": identity, **kept}, reason, replaces=("instance type",))
        return Found(State.DIFFERS, identity, {"id": identity, **kept}, changes=("content",))

    def update(self, wanted: Wanted, found: Found) -> None:
        """Make a new version."""
        template = self._described(wanted)
        for call in self.expected(wanted, "create_launch_template") if template else ():
            data = call["LaunchTemplateData"]
            # Of content and predecessor: a repeated call makes no second version, and one that goes back makes a new one.
            latest = template["LatestVersionNumber"] if template else ""
            token = str(uuid.uuid5(uuid.UUID(wanted.token), f"{latest} {json.dumps(data, sort_keys=True)}"))
            self.clients.update(
                "ec2", "create_launch_template_version", LaunchTemplateId=found.id, LaunchTemplateData=data, ClientToken=token
            )

    def _described(self, wanted: Wanted) -> Item | None:
        listed = self.clients.read("ec2", "describe_launch_templates", LaunchTemplateNames=[wanted.object.name]).get("LaunchTemplates", ())
        return listed[0] if listed else None

    def _content(self, template: str, version: str) -> Item:
        answer = self.clients.read("ec2", "describe_launch_template_versions", LaunchTemplateId=template, Versions=[version])
        versions = answer.get("LaunchTemplateVersions", ())
        return versions[0]["LaunchTemplateData"] if versions else {}

    def delete(self, wanted: Wanted, found: Found) -> None:
        """Delete it with its versions."""
        del wanted
        self.clients.delete("ec2", "delete_launch_template", LaunchTemplateId=found.id)


def _contains(there: Any, wanted: Any) -> bool:
    """Whether something is what is wanted; EC2 adds defaults. Anything else that it has may run a program on the nodes."""
    if isinstance(wanted, Mapping):
        if not isinstance(there, Mapping) or any(there[key] for key in there.keys() - wanted.keys() - _DEFAULTS):
            return False
        return all(_contains(there.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(there, list) and len(there) == len(wanted) and all(map(_contains, _ordered(there), _ordered(wanted)))
    return bool(there == wanted)


def _ordered(items: list[Any]) -> list[Any]:
    """Order interfaces by their cards, and texts, which EC2 lists in any order."""
    if all(isinstance(item, Mapping) for item in items):
        return sorted(items, key=lambda item: int(item.get("NetworkCardIndex", 0)))
    return sorted(items, key=str)
