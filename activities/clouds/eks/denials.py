"""Explain calls that the policies of `deploy/clouds/aws` deny because a tag is missing.

AWS then says only that no policy allows the action, although the policy contains it.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from activities.clouds.desired.owner import ClusterOwner
from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.handlers.base import AwsHandler, Item, tags_of
from activities.clouds.eks.marks import MarkedObject, lacks, missing_tags
from activities.clouds.eks.rights import OF_MARKED_OBJECTS
from activities.clouds.eks.wanted.storage import FILE_SYSTEM
from activities.clouds.lifecycle.handler import CloudObservation, ObjectWork
from api_types import labels
from api_types.errors import ModelplaneError, OwnerMarkMissing, PermissionDenied

_Known = Mapping[str, Mapping[str, str]]
"""The facts of a cluster's objects, by key."""
_DENIED = re.compile(
    r"is not authorized to perform: (?P<action>[a-z0-9-]+:[A-Za-z0-9]+)"
    r"(?: on resource: (?P<resource>(?:role |policy )?\S+))?"
)
_OTHER_CAUSE = re.compile(
    r"explicit deny|service control policy|boundary|session policy"
)
# The tags that the conditions of the policies compare. The second one is optional.
_COMPARED = (labels.CLOUD_OWNER, labels.INSTALLATION)
# By the type of an object in its ARN: the call that lists it, and its filter.
_LISTINGS: Mapping[str, tuple[str, str, str, str]] = {
    "vpc": ("describe_vpcs", "Vpcs", "Filters", "vpc-id"),
    "subnet": ("describe_subnets", "Subnets", "Filters", "subnet-id"),
    "internet-gateway": (
        "describe_internet_gateways",
        "InternetGateways",
        "Filters",
        "internet-gateway-id",
    ),
    "elastic-ip": ("describe_addresses", "Addresses", "Filters", "allocation-id"),
    "natgateway": ("describe_nat_gateways", "NatGateways", "Filter", "nat-gateway-id"),
    "route-table": (
        "describe_route_tables",
        "RouteTables",
        "Filters",
        "route-table-id",
    ),
}


@contextlib.contextmanager
def explained(
    clients: AwsClients, owner: ClusterOwner, known: _Known
) -> Iterator[None]:
    """Raise OwnerMarkMissing instead of PermissionDenied if an object lacks its tags.

    `known` are the facts of the cluster's objects, by key.
    """
    try:
        yield
    except PermissionDenied as error:
        text = ""
        # The search for the cause may be denied too.
        with contextlib.suppress(ModelplaneError):
            text = _explanation(clients, owner, known, error.message)
        if not text:
            raise
        raise OwnerMarkMissing(text) from None


class ExplainingHandler:
    """A handler whose denied calls are explained. See `ObjectHandler`."""

    def __init__(self, handler: AwsHandler) -> None:
        self._handler = handler

    def look(self, wanted: ObjectWork) -> CloudObservation:
        return self._handler.look(wanted)

    def create(self, wanted: ObjectWork) -> None:
        with self._explained(wanted):
            self._handler.create(wanted)

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        with self._explained(wanted):
            self._handler.update(wanted, found)

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        with self._explained(wanted):
            self._handler.delete(wanted, found)

    def _explained(self, wanted: ObjectWork) -> AbstractContextManager[None]:
        return explained(self._handler.clients, wanted.owner, wanted.known)


def _explanation(
    clients: AwsClients, owner: ClusterOwner, known: _Known, denial: str
) -> str:
    """Return which object lacks which tags, or "" if the tags are not the cause."""
    denied = _DENIED.search(denial)
    if (
        denied is None
        or denied["action"] not in OF_MARKED_OBJECTS
        or _OTHER_CAUSE.search(denial)
    ):
        return ""
    found = _found(clients, denied["resource"] or "", known)
    if found is None:
        return ""
    marked, tags = found
    key, other = _key_of(marked.ids, known), tags.get(labels.CLOUD_OWNER, "")
    missing = missing_tags(tags, owner, key)
    if not any(tag in missing for tag in _COMPARED):
        return ""
    if not key and other not in ("", owner.digits):
        # Nothing shows that this cluster created the object of another owner.
        return ""
    why = f"and the policies allow {denied['action']} only for objects with the owner's tag"
    return lacks(marked, missing, why)


def _found(
    clients: AwsClients, resource: str, known: _Known
) -> tuple[MarkedObject, dict[str, str]] | None:
    """Return the object of a denial with its tags, or None if it is not found.

    IAM names roles as `role NAME`, EFS names nothing, and other services name ARNs.
    """
    service, path = _parsed(resource)
    kind, _, name = path.partition("/")
    if kind == "role":
        name = name.rpartition("/")[2]
        role = clients.read("iam", "get_role", RoleName=name).get("Role")
        return _with_tags(clients, "role", name, role)
    if kind == "policy":
        policy = clients.read("iam", "get_policy", PolicyArn=resource).get("Policy")
        return _with_tags(clients, "policy", resource, policy)
    if service == "ec2":
        return _with_tags(clients, "ec2", name, _of_ec2(clients, kind, name))
    if service == "eks" and kind == "cluster":
        found = clients.read("eks", "describe_cluster", name=name).get("cluster")
        return _with_tags(clients, "eks", resource, found, at="tags")
    if service in ("", "elasticfilesystem"):
        system = name or known.get(FILE_SYSTEM, {}).get("id", "")
        listed = clients.listed("efs", "describe_file_systems", "FileSystems")
        item = next((each for each in listed if each["FileSystemId"] == system), None)
        return _with_tags(clients, "efs", system, item)
    return None


def _parsed(resource: str) -> tuple[str, str]:
    """Return the service of a resource, and its type with its name."""
    if resource.startswith(("role ", "policy ")):
        kind, _, name = resource.partition(" ")
        return "iam", name.rpartition(":")[2] if ":" in name else f"{kind}/{name}"
    parts = resource.split(":", 5)
    return (parts[2], parts[5]) if len(parts) == 6 else ("", "")  # noqa: PLR2004


def _of_ec2(clients: AwsClients, kind: str, identity: str) -> Item | None:
    if kind == "launch-template":
        answer = clients.read(
            "ec2", "describe_launch_templates", LaunchTemplateIds=[identity]
        )
        return next(iter(answer.get("LaunchTemplates", ())), None)
    if kind not in _LISTINGS:
        return None
    operation, result, filters, name = _LISTINGS[kind]
    given = {filters: [{"Name": name, "Values": [identity]}]}
    return next(clients.listed("ec2", operation, result, **given), None)


def _with_tags(
    clients: AwsClients,
    service: str,
    identity: str,
    item: Item | None,
    at: str = "Tags",
) -> tuple[MarkedObject, dict[str, str]] | None:
    if item is None:
        return None
    return MarkedObject(service, (identity,), clients.region), tags_of(item, at)


def _key_of(ids: Sequence[str], known: _Known) -> str:
    """Return the key of the object with this id, or "" if it is unknown."""
    return next(
        (
            key
            for key, facts in known.items()
            if not set(ids).isdisjoint(facts.values())
        ),
        "",
    )
