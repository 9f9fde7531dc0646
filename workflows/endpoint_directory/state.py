"""The state that the directory of a namespace carries from run to run."""

from pydantic import Field

from api_types.base import Message
from api_types.messages.routing import Endpoint, EndpointOwner, EntrySelection
from api_types.messages.versions import MessageVersion
from api_types.payloads.packing import Compact
from api_types.resources.status import EventRecord


class KnownEndpoint(Message):
    """The last report of an endpoint.

    `withdrawing` is the sequence of a report that withdrew it, until the withdrawal is
    complete.
    """

    owner: EndpointOwner
    version: MessageVersion
    endpoint: Endpoint | None = None
    withdrawing: int = 0


class KnownService(Message):
    """A service, the lists that it received, and its route.

    Attributes:
        sequence: the sequence of its report.
        falls_back: whether its lists have the entries of the second priority.
        sent: the version of its last list.
        digest: the digest of the content of that list.
        listed: the endpoints in that list.
        unanswered: the endpoints of all lists since its last answer.
        routed: the endpoints in its route, by its last answer.
        has_answered: whether it has answered a list of this directory. Until then it
            may have a list of an earlier directory, and route the endpoints in it.

    """

    version: MessageVersion
    created: str = ""
    sequence: int = 0
    entries: list[EntrySelection] = Field(default_factory=list)
    falls_back: bool = False
    sent: int = 0
    digest: str = ""
    listed: list[str] = Field(default_factory=list)
    unanswered: list[str] = Field(default_factory=list)
    has_answered: bool = False
    routed: list[str] = Field(default_factory=list)

    def may_route(self, endpoint: str) -> bool:
        """Return whether the route has an endpoint, or may receive it."""
        return (
            not self.has_answered
            or endpoint in self.routed
            or endpoint in self.listed
            or endpoint in self.unanswered
        )


class DirectoryState(Message):
    """Endpoints by `<owner>/<name>`, and services by name.

    `surveyed` means that reports to earlier directories are known. `ended` has the
    versions of deleted objects.
    """

    surveyed: bool = False
    endpoints: Compact[dict[str, KnownEndpoint]] = Field(default_factory=dict)
    services: Compact[dict[str, KnownService]] = Field(default_factory=dict)
    ended: dict[str, MessageVersion] = Field(default_factory=dict)
    last_version: int = 0
    dirty: list[str] = Field(default_factory=list)
    events: list[EventRecord] = Field(default_factory=list)
