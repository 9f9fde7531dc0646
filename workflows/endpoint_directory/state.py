"""What the directory of a namespace carries from run to run."""

from pydantic import Field

from api_types.base import Message
from api_types.messages.routing import Endpoint, EndpointOwner, EntrySelection
from api_types.messages.versions import Version
from api_types.payloads.packing import Compact
from api_types.resources.status import EventRecord


class KnownEndpoint(Message):
    """An endpoint as its owner reported it last. `withdrawing`: the sequence of the report that withdrew it, until that is done."""

    owner: EndpointOwner
    version: Version
    endpoint: Endpoint | None = None
    withdrawing: int = 0


class KnownService(Message):
    """A service, what was sent to it, and what its route has.

    `sequence` is that of its report. `sent` is the version of the last list that it was sent, `digest` that of its content, `listed` the
    endpoints in it. `unanswered`: those of all lists since its last answer. `routed`: what its route has by that answer. `has_answered`: it
    answered a list of this directory. Until then it may have one of an earlier directory, and route what that lists.
    """

    version: Version
    created: str = ""
    sequence: int = 0
    entries: list[EntrySelection] = Field(default_factory=list)
    sent: int = 0
    digest: str = ""
    listed: list[str] = Field(default_factory=list)
    unanswered: list[str] = Field(default_factory=list)
    has_answered: bool = False
    routed: list[str] = Field(default_factory=list)

    def may_route(self, endpoint: str) -> bool:
        """Tell whether the route of the service has an endpoint, or may come to have it."""
        return not self.has_answered or endpoint in self.routed or endpoint in self.listed or endpoint in self.unanswered


class DirectoryState(Message):
    """Endpoints by `<owner>/<name>`, services by name.

    `surveyed`: what was reported before this directory ran is known. `ended` has the versions of those that are gone.
    """

    surveyed: bool = False
    endpoints: Compact[dict[str, KnownEndpoint]] = Field(default_factory=dict)
    services: Compact[dict[str, KnownService]] = Field(default_factory=dict)
    ended: dict[str, Version] = Field(default_factory=dict)
    last_version: int = 0
    dirty: list[str] = Field(default_factory=list)
    events: list[EventRecord] = Field(default_factory=list)
