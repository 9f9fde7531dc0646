"""What the handlers of all kinds share: calls with their facts filled in, and whose an object is."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.failures import Purpose, issue_error
from activities.clouds.eks.wanted.partitions import partition_of
from activities.clouds.graph import Call, Fact, arguments
from activities.clouds.lifecycle.handler import Found, State, Wanted
from api_types import labels
from api_types.errors import ModelplaneError, NotYet
from api_types.messages.clouds import CloudAccount

Item = Mapping[str, Any]

_UPDATES = ("modify_", "update_", "replace_")
_DELETES = ("revoke_", "delete_", "detach_")


class AwsHandler(ABC):
    """One kind of object at AWS. Creates with the calls of the object; a change makes all but the first of them again."""

    def __init__(self, clients: AwsClients, account: CloudAccount) -> None:
        self.clients = clients
        self.account = account

    @abstractmethod
    def look(self, wanted: Wanted) -> Found:
        """Find the object and compare it with what is wanted."""

    @abstractmethod
    def delete(self, wanted: Wanted, found: Found) -> None:
        """Begin to delete the object. Raises Dependency, or Busy."""

    def create(self, wanted: Wanted) -> None:
        """Make the calls of the object. Where it exists already nothing further is done: the next look says whose it is."""
        first, *more = wanted.object.calls
        own = self.run(first, wanted, {})
        if own is None:
            return
        for call in more:
            self.run(call, wanted, own)

    def update(self, wanted: Wanted, found: Found) -> None:
        """Make the calls after the first again; each is success where it changes nothing."""
        for call in wanted.object.calls[1:]:
            self.run(call, wanted, found.facts)

    def run(self, call: Call, wanted: Wanted, own: Mapping[str, str]) -> dict[str, str] | None:
        """Make one call; give the facts of its answer, or None where what it creates is there. Raises NotYet for an unknown fact."""
        answer = self.clients.call(call.service, call.operation, self.filled(call, wanted, own), _purpose(call.operation))
        return None if answer is None else {name: text_at(answer, path) for name, path in call.facts.items()}

    def filled(self, call: Call, wanted: Wanted, own: Mapping[str, str]) -> dict[str, Any]:
        """Give the arguments of a call; `own` are the facts of the object itself. Raises NotYet for an unknown fact."""

        def fact(each: Fact) -> str:
            return own.get(each.name) or wanted.fact(each) if each.key == wanted.object.key else wanted.fact(each)

        return arguments(call, fact, wanted.token)

    def expected(self, wanted: Wanted, operation: str, own: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """Give the arguments of the calls to an operation, to compare with; without those of which a fact is not known."""
        found = []
        for call in wanted.object.calls:
            if call.operation == operation:
                try:
                    found.append(self.filled(call, wanted, own or {}))
                except NotYet:
                    # Of an object that is being deleted, others may be gone and their facts with them.
                    continue
        return found

    @property
    def partition(self) -> str:
        """The first part of every ARN after `arn`."""
        return partition_of(self.clients.region)


def _purpose(operation: str) -> Purpose:
    if operation.startswith(_DELETES):
        return Purpose.DELETE
    return Purpose.UPDATE if operation.startswith(_UPDATES) else Purpose.CREATE


def text_at(answer: Item, path: str) -> str:
    """Give what is at a path of an answer, as text; empty if nothing is there."""
    value: Any = answer
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)


def tags_of(item: Item, at: str = "Tags") -> dict[str, str]:
    """Give the tags of an object, which most services list and EKS has as a mapping."""
    tags = item.get(at) or ()
    return dict(tags) if isinstance(tags, Mapping) else {tag["Key"]: tag["Value"] for tag in tags}


def not_ours(tags: Mapping[str, str], wanted: Wanted) -> Found | None:
    """Give an object as Foreign unless its tags name this cluster as its owner."""
    owner = tags.get(labels.CLOUD_OWNER, "")
    if owner == wanted.owner.digits:
        return None
    return Found(State.FOREIGN, reason=f"its tag {labels.CLOUD_OWNER} is {owner}" if owner else f"it has no tag {labels.CLOUD_OWNER}")


def issues_error(issues: Sequence[Item]) -> type[ModelplaneError] | None:
    """Give the error that the first health issue which says one stands for; None where none does."""
    found = (issue_error(str(issue.get("code", "")), str(issue.get("message", ""))) for issue in issues)
    return next((error for error in found if error is not None), None)


def issues_text(issues: Sequence[Item]) -> str:
    """Give the health issues of an EKS object in words."""
    return "; ".join(f"{issue.get('code', '')}: {issue.get('message', '')}" for issue in issues)[:1000]
