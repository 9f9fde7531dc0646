"""EndpointDirectory: sends lists of endpoints to services, and confirms withdrawals.

Each namespace has one directory. Its first message starts it, and it never ends. It is
idle while nothing changes.
"""

from collections import Counter
from datetime import timedelta
from typing import Any, ClassVar

from temporalio import workflow

from api_types import clock, names
from api_types.base import Message
from api_types.errors import InvalidInput
from api_types.messages.delivery import Delivery
from api_types.messages.entities import CancelRequested
from api_types.messages.routing import EndpointReport, Routed, ServiceReport
from api_types.messages.signals import EndpointDirectorySignals
from workflows.endpoint_directory.directory import Directory
from workflows.endpoint_directory.pace import ListPace
from workflows.endpoint_directory.state import DirectoryState
from workflows.endpoint_directory.survey import survey
from workflows.entity.calls.delivery import undelivered
from workflows.entity.calls.refusals import NEXT_CALL
from workflows.entity.calls.sending import send_all
from workflows.entity.conditions import (
    CANCEL_REFUSED,
    MALFORMED,
    RECEIVER_REFUSES,
    REFUSALS_KEPT,
    with_event,
)
from workflows.entity.handles import handles
from workflows.entity.memo import memo_to_carry
from workflows.entity.start import read_carried

NAMES_SHOWN = 100


@workflow.defn(name="EndpointDirectory")
class EndpointDirectoryWorkflow:
    """Workflow id endpointdirectory/<namespace>."""

    kind: ClassVar[str] = "EndpointDirectory"

    @workflow.init
    def __init__(self, *arguments: Any) -> None:
        self.namespace = _namespace()
        self.state = read_carried(arguments, DirectoryState) or DirectoryState()
        self.directory = Directory(self.namespace, self.state, self._next_number)
        self.arrivals: Counter[str] = Counter()
        self.events = list(self.state.events)
        self.pace = ListPace()

    @workflow.run
    async def run(self, *arguments: Any) -> None:
        """Process reports until this run continues as new."""
        del arguments
        if not self.state.surveyed:
            await survey(self.namespace, self.directory)
            self.state = self.state.model_copy(update={"surveyed": True})
            self.directory.complete()
        self._publish()
        while True:
            await self._send_answers()
            await self._send_lists()
            self._publish()
            # Answers are not carried to the next run. So send them first for reports
            # that arrived during a call.
            if (
                workflow.info().is_continue_as_new_suggested()
                and not self.directory.has_answers
            ):
                break
            await workflow.wait_condition(lambda: self.directory.has_work)
        await workflow.wait_condition(workflow.all_handlers_finished)
        state = self.directory.carried(self.state).model_copy(
            update={"events": self.events}
        )
        workflow.continue_as_new(state, memo=memo_to_carry())

    async def _send_answers(self) -> None:
        answers = self.directory.answers()
        if answers:
            summary = f"confirm the withdrawal of {len(answers)} endpoints"
            await send_all(answers, summary)

    async def _send_lists(self) -> None:
        if not self.directory.dirty:
            return
        if (wait := self.pace.wait(workflow.now())) > timedelta():
            await workflow.sleep(wait, summary="collect more changes of endpoints")
            # Answers that became due during the pause need not wait for the lists.
            await self._send_answers()
        lists = self.directory.lists()
        if not lists:
            return
        self.pace.sent(workflow.now())
        summary = f"send {len(lists)} services their endpoints"
        missing = await send_all(list(lists.values()), summary)
        self.directory.lose(
            [name for name, request in lists.items() if request.workflow_id in missing]
        )

    # Messages

    @handles(EndpointDirectorySignals.REPORT_ENDPOINT)
    def report_endpoint(self, message: EndpointReport) -> None:
        """Record a new, changed or withdrawn endpoint."""
        self.directory.report_endpoint(message)

    @handles(EndpointDirectorySignals.REPORT_SERVICE)
    def report_service(self, message: ServiceReport) -> None:
        """Record a new, changed or deleted service."""
        self.directory.report_service(message)

    @handles(EndpointDirectorySignals.ROUTED)
    def routed(self, message: Routed) -> None:
        """Record the endpoints in the route of a service."""
        self.directory.routed(message)

    @handles(EndpointDirectorySignals.CANCEL_REQUESTED)
    def cancel_requested(self, message: CancelRequested) -> None:
        """Refuse the cancellation: services would not learn of changes."""
        reason = f" ({message.reason})" if message.reason else ""
        self._record(
            CANCEL_REFUSED,
            f"a request to cancel the workflow{reason} was ignored: "
            "the routes of the namespace depend on it",
        )

    @handles(EndpointDirectorySignals.DELIVERY)
    def delivery(self, message: Delivery) -> None:
        """Record that another workflow refuses the signals of this one."""
        if message.problem:
            self._record(RECEIVER_REFUSES, undelivered(message))

    def refuse_malformed(self, message: type[Message], problems: str) -> None:
        """Record a signal whose argument could not be read."""
        self._record(MALFORMED, f"a {message.__name__} message was ignored: {problems}")

    def call_refused(self, summary: str, problem: str) -> None:
        """Record that a call was refused and is retried."""
        self._record("CallRefused", f"{summary}: {problem}")

    def call_accepted(self, summary: str) -> None:
        """Do nothing: the event of a refused call stays."""

    async def before_next_call(self, delay: timedelta) -> None:
        await workflow.sleep(delay, summary=NEXT_CALL)

    # Queries

    @workflow.query
    def describe(self) -> dict[str, Any]:
        """Return counts of endpoints and services, the withdrawals and the events."""
        endpoints = {
            key: known.endpoint
            for key, known in sorted(self.directory.endpoints.items())
        }
        return {
            "kind": self.kind,
            "metadata": {"name": self.namespace},
            "status": {
                "surveyed": self.state.surveyed,
                "endpoints": len(endpoints),
                "services": len(self.directory.services),
                "withdrawing": self.waiting(),
                "events": [
                    event.model_dump(mode="json", by_alias=True)
                    for event in self.events
                ],
            },
        }

    @workflow.query
    def waiting(self) -> list[str]:
        """List the withdrawn endpoints that routes may still contain."""
        found = []
        for key, known in sorted(self.directory.endpoints.items())[:NAMES_SHOWN]:
            if known.withdrawing:
                name = key.partition("/")[2]
                holding = [
                    service
                    for service, other in sorted(self.directory.services.items())
                    if other.may_route(name)
                ]
                found.append(f"{key} waits for the routes of {', '.join(holding)}")
        return found

    # Temporal UI

    def _publish(self) -> None:
        lines = [f"**EndpointDirectory** {self.namespace}", "", "| | |", "|---|---|"]
        lines += [
            f"| endpoints | {len(self.directory.endpoints)} |",
            f"| services | {len(self.directory.services)} |",
        ]
        lines += ["", *(f"- {line}" for line in self.waiting())]
        workflow.set_current_details("\n".join(lines))

    def _record(self, reason: str, message: str) -> None:
        now = clock.timestamp(workflow.now())
        self.events = with_event(
            self.events,
            "Warning",
            reason,
            message,
            now=now,
            of_reason_max=REFUSALS_KEPT,
        )

    def _next_number(self, last: int) -> int:
        return max(last + 1, int(workflow.time() * 1000))


def _namespace() -> str:
    """Return the namespace in the id of this workflow. Raises InvalidInput."""
    workflow_id = workflow.info().workflow_id
    namespace = workflow_id.partition("/")[2]
    if (
        not namespace
        or "/" in namespace
        or workflow_id != names.endpoint_directory_id(namespace)
    ):
        raise InvalidInput(
            f'id: must be endpointdirectory/<namespace>, got "{workflow_id}"'
        )
    if names.is_reserved_namespace(namespace):
        raise InvalidInput(
            f'id: namespace "{namespace}" belongs to the platform; '
            "use a namespace of your own"
        )
    return namespace
