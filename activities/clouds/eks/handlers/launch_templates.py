"""The handler of launch templates of node groups."""

import json
import uuid
from collections.abc import Mapping
from typing import Any

from activities.clouds.eks.handlers.base import AwsHandler, Item, not_ours, tags_of
from activities.clouds.eks.handlers.control_plane import VERSION
from activities.clouds.eks.wanted.machines import CardInterface, to_text
from activities.clouds.eks.wanted.node_groups import CARDS_FACT
from activities.clouds.lifecycle.handler import (
    ABSENT,
    CloudObservation,
    ObjectWork,
    State,
)

# Additional fields with these names are accepted, because EC2 adds them to a disk or an
# interface. Additional user data, images, snapshots, keys and metadata options are not
# accepted.
_DEFAULTS = {
    "DeleteOnTermination",
    "Description",
    "Encrypted",
    "Iops",
    "Throughput",
    "VolumeType",
}


class LaunchTemplateHandler(AwsHandler):
    """A launch template.

    Changed content becomes a new version, and groups refer to a version by number.
    Other users may be allowed to create versions of a template but not to replace
    nodes. So a group never gets the number of a version that contains anything but the
    desired content.
    """

    def look(self, wanted: ObjectWork) -> CloudObservation:
        """Find the template by name, and compare its latest version."""
        template = self._described(wanted)
        if template is None:
            return ABSENT
        marked = self.marked("ec2", str(template["LaunchTemplateId"]))
        if foreign := not_ours(tags_of(template), wanted, marked):
            return foreign
        identity, version = (
            str(template["LaunchTemplateId"]),
            str(template["LatestVersionNumber"]),
        )
        facts = {"id": identity, VERSION: version}
        expected = self.expected(wanted, "create_launch_template")
        if not expected:
            return CloudObservation(State.READY, identity, facts)
        data, there = (
            expected[0]["LaunchTemplateData"],
            self._content(identity, version),
        )
        if cards := there.get("NetworkInterfaces"):
            facts[CARDS_FACT] = to_text(
                [
                    CardInterface(
                        int(each.get("NetworkCardIndex", 0)),
                        int(each.get("DeviceIndex", 0)),
                        str(each.get("InterfaceType", "")),
                    )
                    for each in cards
                ]
            )
        if _contains(there, data):
            return CloudObservation(State.READY, identity, facts)
        before = wanted.known.get(wanted.object.key, {})
        kept = {name: before[name] for name in (VERSION, CARDS_FACT) if name in before}
        nodes = (
            self._content(identity, before[VERSION])
            if before.get(VERSION, version) != version
            else there
        )
        if nodes.get("InstanceType") != data["InstanceType"]:
            # The nodes of the group have the other machine type too, and EKS cannot
            # change the type of a group.
            reason = f"instance type is {nodes.get('InstanceType')}"
            return CloudObservation(
                State.DIFFERS,
                identity,
                {"id": identity, **kept},
                reason,
                replaces=("instance type",),
            )
        return CloudObservation(
            State.DIFFERS, identity, {"id": identity, **kept}, changes=("content",)
        )

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Create a new version."""
        template = self._described(wanted)
        for call in self.expected(wanted, "create_launch_template") if template else ():
            data = call["LaunchTemplateData"]
            # The token depends on the content and the previous version. So a repeated
            # call creates no second version, but a change back to earlier content
            # creates a new one.
            latest = template["LatestVersionNumber"] if template else ""
            content = f"{latest} {json.dumps(data, sort_keys=True)}"
            token = str(uuid.uuid5(uuid.UUID(wanted.token), content))
            self.clients.update(
                "ec2",
                "create_launch_template_version",
                LaunchTemplateId=found.id,
                LaunchTemplateData=data,
                ClientToken=token,
            )

    def _described(self, wanted: ObjectWork) -> Item | None:
        listed = self.clients.read(
            "ec2", "describe_launch_templates", LaunchTemplateNames=[wanted.object.name]
        ).get("LaunchTemplates", ())
        return listed[0] if listed else None

    def _content(self, template: str, version: str) -> Item:
        answer = self.clients.read(
            "ec2",
            "describe_launch_template_versions",
            LaunchTemplateId=template,
            Versions=[version],
        )
        versions = answer.get("LaunchTemplateVersions", ())
        return versions[0]["LaunchTemplateData"] if versions else {}

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Delete the template with its versions."""
        del wanted
        self.clients.delete("ec2", "delete_launch_template", LaunchTemplateId=found.id)


def _contains(there: Any, wanted: Any) -> bool:
    """Return True if `there` equals `wanted` apart from EC2's defaults.

    Any other addition could run a program on the nodes.
    """
    if isinstance(wanted, Mapping):
        if not isinstance(there, Mapping):
            return False
        if any(there[key] for key in there.keys() - wanted.keys() - _DEFAULTS):
            return False
        return all(_contains(there.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(there, list)
            and len(there) == len(wanted)
            and all(map(_contains, _ordered(there), _ordered(wanted)))
        )
    return bool(there == wanted)


def _ordered(items: list[Any]) -> list[Any]:
    """Sort interfaces by card, and sort texts, because EC2 lists them in any order."""
    if all(isinstance(item, Mapping) for item in items):
        return sorted(items, key=lambda item: int(item.get("NetworkCardIndex", 0)))
    return sorted(items, key=str)
