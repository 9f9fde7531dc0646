"""The tags that objects at AWS lack, and the commands that restore them.

Modelplane recognizes an object by its tags, and the policies of `deploy/clouds/aws` allow
changes only of objects with them.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from activities.clouds.desired.owner import ClusterOwner, aws_tags
from api_types import labels


class MarkedObject(NamedTuple):
    """An object or objects at AWS that should have the tags of their owner.

    `service` is `ec2`, `efs`, `eks`, `role` or `policy`. Its command takes `ids`, which
    are ids at EC2 and EFS, names of roles, or ARNs.
    """

    service: str
    ids: Sequence[str]
    region: str

    @property
    def title(self) -> str:
        kind = {"role": "role ", "policy": "policy "}.get(self.service, "")
        return f"{kind}{', '.join(self.ids)}"

    @property
    def they_are(self) -> str:
        return "they are" if len(self.ids) > 1 else "it is"


def missing_tags(
    tags: Mapping[str, str], owner: ClusterOwner, key: str
) -> dict[str, str]:
    """Return the tags of the owner that are missing in `tags`, or have another value.

    An empty `key` leaves out the tag with the key of the object.
    """
    wanted = aws_tags(owner, key, "")
    optional = {"Name"} if key else {"Name", labels.CLOUD_OBJECT}
    return {
        tag: value
        for tag, value in wanted.items()
        if tag not in optional and tags.get(tag) != value
    }


def lacks(marked: MarkedObject, missing: Mapping[str, str], why: str) -> str:
    """Return the text for a person: the object, its missing tags, and the command.

    `why` is the consequence of the missing tags.
    """
    named = ", ".join(f"{tag}={value}" for tag, value in missing.items())
    tags, have = ("tag", "does") if len(missing) == 1 else ("tags", "does")
    if len(marked.ids) > 1:
        have = "do"
    return (
        f"{marked.title} {have} not have the {tags} {named}, {why}; restore with "
        f"`{restoring(marked, missing)}`"
    )


def restoring(marked: MarkedObject, missing: Mapping[str, str]) -> str:
    """Return the command that gives an object its missing tags."""
    pairs = [f"Key={tag},Value={value}" for tag, value in missing.items()]
    ids, region = list(marked.ids), ["--region", marked.region]
    # Each `eks tag-resource` names one object.
    words = {
        "ec2": ["ec2", "create-tags", *region, "--resources", *ids, "--tags", *pairs],
        "efs": [
            "efs",
            "tag-resource",
            *region,
            "--resource-id",
            *ids,
            "--tags",
            *pairs,
        ],
        "role": ["iam", "tag-role", "--role-name", *ids, "--tags", *pairs],
        "policy": ["iam", "tag-policy", "--policy-arn", *ids, "--tags", *pairs],
        "eks": [
            *("eks", "tag-resource", *region, "--resource-arn", *ids, "--tags"),
            ",".join(f"{tag}={value}" for tag, value in missing.items()),
        ],
    }
    return shlex.join(["aws", *words[marked.service]])
