"""The state of the directory, and its decisions: pure, without calls.

Endpoints and services report to the directory. It returns lists of endpoints for
services, and answers that confirm withdrawals to the owners of endpoints. A withdrawal
is complete when no list contains the endpoint any more, and every service that received
the endpoint has confirmed that its route does not contain it.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from api_types.digests import report_digest
from api_types.limits import ROUTE_BACKENDS_MAX
from api_types.messages.delivery import EntityRef, SignalRequest, entity
from api_types.messages.routing import (
    Endpoint,
    EndpointReport,
    EndpointWithdrawn,
    EntryEndpoints,
    EntrySelection,
    Routed,
    SelectedEndpoint,
    ServiceEndpoints,
    ServiceReport,
)
from api_types.messages.signals import EndpointOwnerSignals, ModelServiceSignals
from api_types.messages.versions import MessageVersion
from api_types.names import workflow_id
from workflows.endpoint_directory.state import (
    DirectoryState,
    KnownEndpoint,
    KnownService,
)

# The number of deleted objects that are remembered. Their late messages arrive within
# seconds.
ENDED_KEPT = 256


class Directory:
    """The endpoints and services of one namespace.

    `next_version` returns a number above the versions of all earlier lists.
    """

    def __init__(
        self, namespace: str, state: DirectoryState, next_version: Callable[[int], int]
    ) -> None:
        self._namespace = namespace
        self._next_version = next_version
        self._is_complete = state.surveyed
        self.endpoints = dict(state.endpoints)
        self.services = dict(state.services)
        self.ended = dict(state.ended)
        self.last_version = state.last_version
        # The services that need a new list, in the order of the changes.
        self.dirty = dict.fromkeys(state.dirty)
        self._answers: dict[str, SignalRequest] = {}

    def carried(self, state: DirectoryState) -> DirectoryState:
        """Return the state for the next run."""
        return state.model_copy(
            update={
                "endpoints": self.endpoints,
                "services": self.services,
                "ended": self.ended,
                "last_version": self.last_version,
                "dirty": list(self.dirty),
                "surveyed": self._is_complete,
            }
        )

    @property
    def has_work(self) -> bool:
        """Return whether there is something to send."""
        return bool(self.dirty) or self.has_answers

    @property
    def has_answers(self) -> bool:
        """Return whether an owner waits for its answer."""
        return bool(self._answers)

    def complete(self) -> None:
        """Begin to answer owners, after the survey of earlier reports.

        A route may contain endpoints that an incomplete directory does not know.
        """
        self._is_complete = True
        self.answer_all()

    # Reports

    def report_endpoint(self, message: EndpointReport) -> None:
        """Record an owner's report of its endpoint."""
        key = f"{message.owner}/{message.name}"
        known = self.endpoints.get(key)
        version = known.version if known else self.ended.get(key, MessageVersion())
        if not version.accepts(message.uid, message.sequence):
            return
        before = known.endpoint if known else None
        self._mark_selecting(before, message.endpoint)
        if message.gone:
            self.endpoints.pop(key, None)
            self._end(
                key, version.advanced(message.uid, message.sequence).ended(message.uid)
            )
            return
        self.ended.pop(key, None)
        self.endpoints[key] = KnownEndpoint(
            owner=message.owner,
            version=version.advanced(message.uid, message.sequence),
            endpoint=message.endpoint,
            # An endpoint without a backend is in no list either. Its pods are about to
            # be replaced, or are not ready.
            withdrawing=0
            if message.endpoint and message.endpoint.backend
            else message.sequence,
        )
        self._answer_withdrawn(key)

    def report_service(self, message: ServiceReport) -> None:
        """Record which endpoints a service selects."""
        key = f"ModelService/{message.name}"
        known = self.services.get(message.name)
        version = known.version if known else self.ended.get(key, MessageVersion())
        if not version.accepts(message.uid, message.sequence):
            return
        self.last_version = max(self.last_version, message.version)
        if message.gone:
            self.services.pop(message.name, None)
            self.dirty.pop(message.name, None)
            self._end(
                key, version.advanced(message.uid, message.sequence).ended(message.uid)
            )
            self._mark_sharing(
                known.entries if known else message.entries, message.name
            )
            self.answer_all()
            return
        self.ended.pop(key, None)
        was = (
            known
            if known and known.version.uid == message.uid
            else KnownService(version=version, routed=message.routed)
        )
        self.services[message.name] = was.model_copy(
            update={
                "version": version.advanced(message.uid, message.sequence),
                "created": message.created,
                "sequence": message.sequence,
                "entries": message.entries,
                "falls_back": message.falls_back,
            }
        )
        # The service may have lost its last list, so send one again.
        self.services[message.name] = self.services[message.name].model_copy(
            update={"digest": ""}
        )
        self.dirty[message.name] = None
        self._mark_sharing([*was.entries, *message.entries], message.name)

    def routed(self, message: Routed) -> None:
        """Record the endpoints in the route of a service.

        An answer to an older list says nothing about the newer one.
        """
        known = self.services.get(message.service)
        if (
            known is None
            or known.version.uid != message.uid
            or message.version != known.sent
        ):
            return
        self.services[message.service] = known.model_copy(
            update={"routed": message.endpoints, "unanswered": [], "has_answered": True}
        )
        self.answer_all()

    def lose(self, services: Sequence[str]) -> None:
        """Forget services that do not run and so cannot answer."""
        for name in services:
            if known := self.services.pop(name, None):
                self._mark_sharing(known.entries, name)
            self.dirty.pop(name, None)
        self.answer_all()

    # Lists and answers

    def lists(self) -> dict[str, SignalRequest]:
        """Return the lists that services need, and record them as sent."""
        requests: dict[str, SignalRequest] = {}
        for name in self.dirty:
            known = self.services[name]
            entries = self._entries(known, name)
            digest = report_digest(
                [known.sequence, [entry.wire() for entry in entries]]
            )
            if digest == known.digest:
                continue
            self.last_version = self._next_version(self.last_version)
            listed = sorted(
                {endpoint.name for entry in entries for endpoint in entry.endpoints}
            )
            self.services[name] = known.model_copy(
                update={
                    "sent": self.last_version,
                    "digest": digest,
                    "listed": listed,
                    "unanswered": sorted({*known.unanswered, *known.listed, *listed}),
                }
            )
            message = ServiceEndpoints(
                uid=known.version.uid,
                sequence=known.sequence,
                version=self.last_version,
                entries=entries,
            )
            receiver = entity(ModelServiceSignals, self._namespace, name)
            requests[name] = ModelServiceSignals.ENDPOINTS_CHANGED.request(
                receiver, message
            )
        self.dirty.clear()
        return requests

    def answers(self) -> list[SignalRequest]:
        """Return the answers about complete withdrawals, and forget the answers."""
        found = list(self._answers.values())
        self._answers.clear()
        return found

    def answer_all(self) -> None:
        """Answer every owner whose withdrawal is complete by now."""
        for key, known in self.endpoints.items():
            if known.withdrawing:
                self._answer_withdrawn(key)

    def _answer_withdrawn(self, key: str) -> None:
        known = self.endpoints[key]
        _, _, name = key.partition("/")
        if (
            not self._is_complete
            or not known.withdrawing
            or any(service.may_route(name) for service in self.services.values())
        ):
            return
        owner = EntityRef[EndpointOwnerSignals](
            workflow_id(known.owner, self._namespace, name)
        )
        message = EndpointWithdrawn(uid=known.version.uid, sequence=known.withdrawing)
        self._answers[key] = EndpointOwnerSignals.ENDPOINT_WITHDRAWN.request(
            owner, message
        )
        self.endpoints[key] = known.model_copy(update={"withdrawing": 0})

    # Selection

    def _mark_selecting(self, *endpoints: Endpoint | None) -> None:
        """Mark the services that select one of these endpoints."""
        for name, service in self.services.items():
            if any(
                endpoint and _entry_of(service.entries, endpoint) is not None
                for endpoint in endpoints
            ):
                self.dirty[name] = None

    def _mark_sharing(self, entries: Sequence[EntrySelection], service: str) -> None:
        """Mark the other services that select an endpoint of these entries."""
        for known in self.endpoints.values():
            if known.endpoint and _entry_of(entries, known.endpoint) is not None:
                for name, other in self.services.items():
                    if (
                        name != service
                        and _entry_of(other.entries, known.endpoint) is not None
                    ):
                        self.dirty[name] = None

    def _entries(self, service: KnownService, name: str) -> list[EntryEndpoints]:
        """Return the endpoints that each entry of a service selects."""
        selected: list[list[Endpoint]] = [[] for _ in service.entries]
        for key in sorted(self.endpoints, key=lambda each: each.partition("/")[2]):
            endpoint = self.endpoints[key].endpoint
            if (
                endpoint
                and (number := _entry_of(service.entries, endpoint)) is not None
            ):
                selected[number].append(endpoint)
        ready = [
            [endpoint for endpoint in endpoints if endpoint.backend]
            for endpoints in selected
        ]
        priorities = sorted(
            {
                entry.priority
                for entry, endpoints in zip(service.entries, ready, strict=True)
                if endpoints
            }
        )
        first = next(iter(priorities), None)
        active = [
            number
            for priority in priorities[: 2 if service.falls_back else 1]
            for number, entry in enumerate(service.entries)
            if ready[number] and entry.priority == priority
        ]
        listed = set(islice(active, ROUTE_BACKENDS_MAX))
        return [
            EntryEndpoints(
                matched=len(selected[number]),
                ready=len(ready[number]),
                standby=first is not None and entry.priority > first,
                endpoints=[
                    self._selected(each, service, name)
                    for each in ready[number][:ROUTE_BACKENDS_MAX]
                ]
                if number in listed
                else [],
            )
            for number, entry in enumerate(service.entries)
        ]

    def _selected(
        self, endpoint: Endpoint, service: KnownService, name: str
    ) -> SelectedEndpoint:
        older = min(
            (
                (other.created, other_name)
                for other_name, other in self.services.items()
                if (other.created, other_name) < (service.created, name)
                and _entry_of(other.entries, endpoint) is not None
            ),
            default=("", ""),
        )
        return SelectedEndpoint(
            name=endpoint.name,
            url=endpoint.url,
            backend=endpoint.backend,
            rewrite_path=endpoint.rewrite_path,
            cluster=endpoint.cluster,
            shared_with=older[1],
        )

    def _end(self, key: str, version: MessageVersion) -> None:
        self.ended.pop(key, None)
        self.ended[key] = version
        for old in list(self.ended)[:-ENDED_KEPT]:
            del self.ended[old]


def selects(match_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether the labels contain every pair."""
    return all(labels.get(key) == value for key, value in match_labels.items())


def _entry_of(entries: Sequence[EntrySelection], endpoint: Endpoint) -> int | None:
    """Return the number of the first entry that selects an endpoint."""
    return next(
        (
            number
            for number, entry in enumerate(entries)
            if selects(entry.match_labels, endpoint.labels)
        ),
        None,
    )
