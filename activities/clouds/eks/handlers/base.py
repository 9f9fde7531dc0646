"""The common part of all handlers: calls with resolved facts, and ownership."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from activities.clouds.desired.graph import CloudCall, Fact, arguments
from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.failures import Purpose, issue_error
from activities.clouds.eks.marks import MarkedObject, lacks, missing_tags
from activities.clouds.eks.texts import next_step
from activities.clouds.eks.wanted.partitions import partition_of
from activities.clouds.lifecycle.handler import CloudObservation, ObjectWork, State
from api_types import labels
from api_types.errors import ModelplaneError, NotYet
from api_types.messages.clouds import CloudAccount

Item = Mapping[str, Any]

_UPDATES = ("modify_", "update_", "replace_")
_DELETES = ("revoke_", "delete_", "detach_", "release_", "disassociate_")
_READS = ("describe_", "list_", "get_", "simulate_")


class AwsHandler(ABC):
    """The handler of one kind of object at AWS.

    It creates an object by making the calls of the desired object. To change the
    object, it repeats all calls but the first.
    """

    def __init__(self, clients: AwsClients, account: CloudAccount) -> None:
        self.clients = clients
        self.account = account

    @abstractmethod
    def look(self, wanted: ObjectWork) -> CloudObservation:
        """Find the object and compare it with the desired one."""

    @abstractmethod
    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Start the deletion of the object. Raises Dependency, or Busy."""

    def create(self, wanted: ObjectWork) -> None:
        """Make the calls of the object.

        If the object exists, only the first call is made: the next `look` determines
        its owner.
        """
        first, *more = wanted.object.calls
        own = self.run(first, wanted, {})
        if own is None:
            return
        for call in more:
            self.run(call, wanted, own)

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Repeat all calls but the first. They are idempotent."""
        for call in wanted.object.calls[1:]:
            self.run(call, wanted, found.facts)

    def run(
        self, call: CloudCall, wanted: ObjectWork, own: Mapping[str, str]
    ) -> dict[str, str] | None:
        """Make one call, and return the facts of its response.

        Returns None if the created object exists. Raises NotYet for an unknown fact.
        """
        answer = self.clients.call(
            call.service,
            call.operation,
            self.filled(call, wanted, own),
            purpose_of(call.operation),
        )
        return (
            None
            if answer is None
            else {name: text_at(answer, path) for name, path in call.facts.items()}
        )

    def filled(
        self, call: CloudCall, wanted: ObjectWork, own: Mapping[str, str]
    ) -> dict[str, Any]:
        """Return the arguments of a call.

        `own` are the facts of the object itself. Raises NotYet for an unknown fact.
        """

        def fact(each: Fact) -> str:
            if each.key == wanted.object.key and own.get(each.name):
                return own[each.name]
            return wanted.fact(each)

        return arguments(call, fact, wanted.token)

    def expected(
        self, wanted: ObjectWork, operation: str, own: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """Return the arguments of all calls of an operation, for comparison.

        Calls with an unknown fact are left out.
        """
        found = []
        for call in wanted.object.calls:
            if call.operation == operation:
                try:
                    found.append(self.filled(call, wanted, own or {}))
                except NotYet:
                    # During a deletion, other objects and their facts may already be
                    # gone.
                    continue
        return found

    def marked(self, service: str, *ids: str) -> MarkedObject:
        """Return an object of the cluster by its service and its ids."""
        return MarkedObject(service, ids, self.clients.region)

    def not_ours_inside(
        self, item: Item, arn: str, wanted: ObjectWork
    ) -> CloudObservation | None:
        """Return a part of the control plane as Foreign unless its tags name the owner.

        Its name does not contain the cluster's digits, so only a known part is
        `unmarked`. `arn` is the name of the field with its ARN.
        """
        marked = self.marked("eks", str(item[arn])) if wanted.is_known else None
        return not_ours(tags_of(item, "tags"), wanted, marked)

    @property
    def partition(self) -> str:
        """The first part of every ARN after `arn`."""
        return partition_of(self.clients.region)


def purpose_of(operation: str) -> Purpose:
    """Return the purpose of an operation, which its name begins with."""
    if operation.startswith(_DELETES):
        return Purpose.DELETE
    if operation.startswith(_READS):
        return Purpose.READ
    return Purpose.UPDATE if operation.startswith(_UPDATES) else Purpose.CREATE


def text_at(answer: Item, path: str) -> str:
    """Return the value at a path of a response as text, or "" if there is none."""
    value: Any = answer
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)


def tags_of(item: Item, at: str = "Tags") -> dict[str, str]:
    """Return the tags of an object. EKS has a mapping, and most services a list."""
    tags = item.get(at) or ()
    return (
        dict(tags)
        if isinstance(tags, Mapping)
        else {tag["Key"]: tag["Value"] for tag in tags}
    )


def not_ours(
    tags: Mapping[str, str], wanted: ObjectWork, marked: MarkedObject | None = None
) -> CloudObservation | None:
    """Return a Foreign object unless the tags name this cluster as the owner.

    `marked` is an object with the cluster's name or id, which the cluster created. It is
    `unmarked` if it has no owner, or if it is known and somebody changed its owner.
    """
    owner = tags.get(labels.CLOUD_OWNER, "")
    if owner == wanted.owner.digits:
        return None
    reason = f"it has no tag {labels.CLOUD_OWNER}"
    if owner:
        reason = f"its tag {labels.CLOUD_OWNER} is {owner}"
    if marked is None or (owner and not wanted.is_known):
        return CloudObservation(State.FOREIGN, reason=reason)
    return unmarked(marked, tags, wanted, reason)


def unmarked(
    marked: MarkedObject, tags: Mapping[str, str], wanted: ObjectWork, reason: str
) -> CloudObservation:
    """Return an object of the cluster that lacks tags as Foreign.

    Raises NotYet if it lacks none, because somebody restored them after the search.
    """
    missing = missing_tags(tags, wanted.owner, wanted.object.key)
    if not missing:
        raise NotYet(f"{marked.title} has its tags again, and is searched for again")
    why = f"so {marked.they_are} neither changed nor deleted"
    text = lacks(marked, missing, why)
    return CloudObservation(State.FOREIGN, reason=reason, unmarked=text)


def issues_error(issues: Sequence[Item]) -> type[ModelplaneError] | None:
    """Return the error class of the first health issue that has one, or None."""
    found = (
        issue_error(str(issue.get("code", "")), str(issue.get("message", "")))
        for issue in issues
    )
    return next((error for error in found if error is not None), None)


def issues_text(issues: Sequence[Item]) -> str:
    """Return the health issues of an EKS object as text, each with its next step."""
    texts = []
    for issue in issues:
        code, message = str(issue.get("code", "")), str(issue.get("message", ""))
        text = ": ".join(filter(None, (code, message)))
        texts.append("; ".join(filter(None, (text, next_step(code, message)))))
    return "; ".join(texts)[:1000]
