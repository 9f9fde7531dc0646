"""A `temporalio.client.Client` on the simulated server, with the calls that the product
uses.

Each call takes some time and may fail as a network call does: before its effect, after
it, or late. The client of a worker ends with the worker.
"""

import asyncio
import contextlib
import functools
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from temporalio.api.common.v1 import Payload, SearchAttributes
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import (
    WorkflowExecutionStatus,
    WorkflowHistoryEventFilterType,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
)
from temporalio.common import (
    QueryRejectCondition,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.converter import decode_typed_search_attributes, encode_search_attributes
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from fleet_client.temporal.converter import DATA_CONVERTER
from tests.simulation.poisons import Poison, unreadable_payload
from tests.simulation.runs import (
    COMPLETED,
    CONTINUED,
    FAILED,
    RUNNING,
    TERMINATED,
    Run,
    value_of,
)
from tests.simulation.server import Row
from tests.simulation.workers import Worker, WorkerDied

if TYPE_CHECKING:
    from tests.simulation.world import World

ResultT = TypeVar("ResultT")

_LATENCY = (0.001, 0.02)
_LATE = (1.0, 30.0)
_SILENT = (5.0, 120.0)
_OUTAGE_SECONDS = 5.0
"""The time for which the SDK retries a call that the server does not answer."""
_QUERY_SECONDS = 30.0
_PAGE = 1000
_UNSET = object()
_ALL_EVENTS = WorkflowHistoryEventFilterType.ALL_EVENT
_NAMES = {
    RUNNING: "Running",
    COMPLETED: "Completed",
    FAILED: "Failed",
    TERMINATED: "Terminated",
    CONTINUED: "ContinuedAsNew",
}
"""The statuses as list filters have them."""


class SimClient:
    """A client of one worker, or of a user if there is none."""

    namespace = "default"
    data_converter = DATA_CONVERTER

    def __init__(self, world: "World", worker: Worker | None = None) -> None:
        self._world = world
        self._server = world.server
        self._worker = worker

    def get_workflow_handle(
        self, workflow_id: str, *, run_id: str | None = None, **_: Any
    ) -> "Handle":
        """See the SDK."""
        return Handle(self, workflow_id, run_id)

    async def start_workflow(
        self,
        workflow: str,
        arg: Any = _UNSET,
        *,
        id: str,  # noqa: A002 - the SDK's name
        task_queue: str,
        args: Sequence[Any] = (),
        id_conflict_policy: WorkflowIDConflictPolicy = WorkflowIDConflictPolicy.UNSPECIFIED,
        id_reuse_policy: WorkflowIDReusePolicy = WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        memo: Mapping[str, Any] | None = None,
        search_attributes: TypedSearchAttributes | None = None,
        start_signal: str | None = None,
        start_signal_args: Sequence[Any] = (),
        static_summary: str = "",
        rpc_timeout: timedelta | None = None,
        request_id: str | None = None,
    ) -> "Handle":
        """See the SDK."""
        del static_summary, rpc_timeout
        fields = _encoded(search_attributes)
        arguments = list(args) if arg is _UNSET else [arg]

        def start() -> Run:
            return self._server.start(
                workflow,
                arguments,
                id,
                task_queue,
                conflict=id_conflict_policy,
                reuse=id_reuse_policy,
                memo=memo or {},
                attributes=fields,
                signal=(start_signal, start_signal_args) if start_signal else None,
                request_id=request_id or "",
            )

        run = await self.call(start, id, repeatable=start_signal is not None)
        return Handle(self, id, None, run.run_id)

    def list_workflows(
        self,
        query: str = "",
        *,
        page_size: int = _PAGE,
        next_page_token: bytes | None = None,
        **_: Any,
    ) -> "Listing":
        """See the SDK."""
        return Listing(self, query, page_size, next_page_token)

    async def count_workflows(self, query: str = "", **_: Any) -> "Counted":
        """See the SDK."""
        holds = parse_filter(query)
        rows = await self.call(lambda: self._server.listed(holds), "visibility")
        return Counted(len(rows))

    async def call(
        self, effect: Callable[[], ResultT], receiver: str, *, repeatable: bool = False
    ) -> ResultT:
        """Make one call to the server. `repeatable` calls may be delivered twice."""
        world, faults = self._world, self._world.faults
        await self._pass()
        if faults.strikes("message.lost", receiver):
            raise _unavailable("the connection was closed before the call was sent")
        if faults.strikes("message.late", receiver):
            return await self._late(effect, faults.between(*_LATE))
        result = effect()
        if repeatable and faults.strikes("message.doubled", receiver):
            asyncio.get_running_loop().call_later(faults.between(*_LATE), _again, effect)
        await asyncio.sleep(world.latency_of_calls())
        self._alive()
        if faults.strikes("reply.lost", receiver):
            raise _unavailable("the connection was closed before the answer came")
        return result

    async def _late(self, effect: Callable[[], ResultT], seconds: float) -> ResultT:
        """Apply the effect later, even if the caller no longer waits."""
        future: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()

        def act() -> None:
            try:
                result = effect()
            except Exception as error:  # noqa: BLE001 - the caller gets it
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        asyncio.get_running_loop().call_later(seconds, act)
        result = await future
        self._alive()
        return result

    async def _pass(self) -> None:
        """Reach the server.

        Raises RPCError in an outage, after some attempts as in the SDK.
        """
        self._alive()
        await asyncio.sleep(self._world.latency_of_calls())
        if self._server.down:
            await asyncio.sleep(_OUTAGE_SECONDS)
            if self._server.down:
                raise _unavailable("connection refused")
        self._alive()

    def _alive(self) -> None:
        if self._worker is not None and not self._worker.alive:
            raise WorkerDied


class Handle:
    """A handle of a workflow."""

    def __init__(
        self,
        client: SimClient,
        workflow_id: str,
        run_id: str | None,
        result_run_id: str | None = None,
    ) -> None:
        self._client, self._server, self._world = client, client._server, client._world
        self.id, self.run_id, self.result_run_id = workflow_id, run_id, result_run_id

    async def signal(
        self, signal: str, arg: Any = _UNSET, *, args: Sequence[Any] = (), **_: Any
    ) -> None:
        """See the SDK."""
        arguments = list(args) if arg is _UNSET else [arg]

        def send() -> None:
            run = self._server.open_run(self.id, self.run_id)
            if self._world.faults.strikes("receiver.silent", self.id):
                run.silent_until = self._world.clock.seconds() + self._world.faults.between(
                    *_SILENT
                )
            self._server.signal(run, signal, arguments)

        await self._client.call(send, self.id, repeatable=True)

    async def query(
        self,
        query: str,
        arg: Any = _UNSET,
        *,
        args: Sequence[Any] = (),
        reject_condition: QueryRejectCondition | None = None,
        rpc_timeout: timedelta | None = None,
        **_: Any,
    ) -> Any:
        """See the SDK."""
        arguments = list(args) if arg is _UNSET else [arg]
        run = await self._client.call(lambda: self._server.find(self.id, self.run_id), self.id)
        if reject_condition is QueryRejectCondition.NOT_OPEN and not run.is_open:
            raise WorkflowQueryRejectedError(_status(run))
        limit = _QUERY_SECONDS if rpc_timeout is None else rpc_timeout.total_seconds()
        try:
            async with asyncio.timeout(limit):
                command = await self._server.query(run, query, arguments)
        except TimeoutError:
            raise RPCError("Timeout expired", RPCStatusCode.DEADLINE_EXCEEDED, b"") from None
        answer = command.respond_to_query
        if answer.HasField("failed"):
            raise WorkflowQueryFailedError(answer.failed.message)
        await asyncio.sleep(self._world.latency_of_calls())
        return value_of(answer.succeeded.response)

    async def describe(self, **_: Any) -> "Description":
        """See the SDK."""
        return await self._client.call(
            lambda: self._description(self._server.find(self.id, self.run_id)), self.id
        )

    def _description(self, run: Run) -> "Description":
        description = Description(run)
        if self._server.is_poisoned(run, Poison.UNREADABLE):
            unread = unreadable_payload("memo")
            description.raw_memo = dict.fromkeys(description.raw_memo, unread)
        return description

    async def terminate(self, *_: Any, reason: str | None = None) -> None:
        """See the SDK."""

        def end() -> None:
            self._server.terminate(self._server.open_run(self.id, self.run_id), reason or "")

        await self._client.call(end, self.id)

    async def cancel(self, **_: Any) -> None:
        """See the SDK."""

        def request() -> None:
            run = self._server.open_run(self.id, self.run_id)
            self._server.request_cancel(run)

        await self._client.call(request, self.id)

    async def execute_update(
        self,
        update: str,
        arg: Any = _UNSET,
        *,
        args: Sequence[Any] = (),
        id: str,  # noqa: A002 - the SDK's name
        rpc_timeout: timedelta | None = None,
        **_: Any,
    ) -> Any:
        """See the SDK."""
        arguments = list(args) if arg is _UNSET else [arg]

        def send() -> "asyncio.Future[Any]":
            return self._server.update(
                self._server.open_run(self.id, self.run_id), update, arguments, id
            )

        future = await self._client.call(send, self.id)
        limit = _QUERY_SECONDS if rpc_timeout is None else rpc_timeout.total_seconds()
        try:
            return await asyncio.wait_for(asyncio.shield(future), limit)
        except TimeoutError:
            raise RPCError("Timeout expired", RPCStatusCode.DEADLINE_EXCEEDED, b"") from None

    async def fetch_history_events(
        self,
        *,
        event_filter_type: WorkflowHistoryEventFilterType = _ALL_EVENTS,
        **_: Any,
    ) -> AsyncIterator[HistoryEvent]:
        """Return the events that the product reads: of the first task of a run, and of its end."""
        run = await self._client.call(lambda: self._server.find(self.id, self.run_id), self.id)
        if event_filter_type is _ALL_EVENTS and run.tasks:
            yield HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED)
        if not run.is_open:
            yield _closing(run)


class Description:
    """A description of a run by the server."""

    def __init__(self, run: Run) -> None:
        self.id, self.run_id, self.workflow_type = run.workflow_id, run.run_id, run.kind
        self.status = _status(run)
        self.start_time, self.close_time = run.reset_time or run.start_time, run.close_time
        self.history_length = run.events
        self.task_queue = run.queue
        self.typed_search_attributes = _decoded(run.attribute_fields)
        self.raw_description = SimpleNamespace(
            workflow_execution_info=SimpleNamespace(first_run_id=run.first_run_id)
        )
        self.raw_memo = dict(run.memo_fields)

    async def memo(self) -> Mapping[str, Any]:
        """Return the memo."""
        return {key: value_of(payload) for key, payload in self.raw_memo.items()}

    async def memo_value(self, key: str, default: Any = None, **_: Any) -> Any:
        """Return a value of the memo."""
        return value_of(self.raw_memo[key]) if key in self.raw_memo else default


@dataclass
class Counted:
    """The answer to a count."""

    count: int


class ListedRun:
    """A row of a list."""

    def __init__(self, row: Row) -> None:
        self.id, self.run_id, self.workflow_type = row.workflow_id, row.run_id, row.kind
        self.status = getattr(WorkflowExecutionStatus, row.status)
        self.start_time, self.close_time = row.start_time, row.close_time
        self.typed_search_attributes = _decoded(row.fields)


class Listing:
    """The answer to a list, page by page."""

    def __init__(self, client: SimClient, query: str, page_size: int, token: bytes | None) -> None:
        self._client, self._query, self._size = client, query, page_size
        self.next_page_token = token
        self.current_page: Sequence[ListedRun] | None = None
        self._begun = False

    async def fetch_next_page(self, *, page_size: int | None = None) -> None:
        """Fetch a page.

        As on the server, a row that is added between two pages is missed.
        """
        self._begun = True
        server = self._client._server
        holds = parse_filter(self._query)
        rows = await self._client.call(lambda: server.listed(holds), "visibility")
        first = int(self.next_page_token or b"0")
        last = first + (page_size or self._size)
        self.current_page = [ListedRun(row) for row in rows[first:last]]
        self.next_page_token = str(last).encode() if last < len(rows) else None

    def __aiter__(self) -> "AsyncIterator[ListedRun]":
        """Iterate over all pages."""
        return self._rows()

    async def _rows(self) -> AsyncIterator[ListedRun]:
        while not self._begun or self.next_page_token:
            await self.fetch_next_page()
            for row in self.current_page or ():
                yield row


_TERM = re.compile(r'^(\w+) (=|IN|>=|>) (?:\((.*)\)|"([^"]*)"|(\d+))$')


@functools.cache
def parse_filter(query: str) -> Callable[[Row], bool]:
    """Parse a list filter, in the forms that the product uses."""
    terms: list[tuple[str, str, list[str]]] = []
    for text in query.split(" AND ") if query else ():
        found = _TERM.match(text)
        if found is None:
            raise AssertionError(f"the simulation cannot read the list filter {query!r}")
        name, operator, listed, quoted, number = found.groups()
        values = (
            re.findall(r'"([^"]*)"', listed)
            if listed is not None
            else [quoted if quoted is not None else number]
        )
        terms.append((name, operator, values))

    def holds(row: Row) -> bool:
        return all(_term(row, *term) for term in terms)

    return holds


def _term(row: Row, name: str, operator: str, values: Sequence[str]) -> bool:
    if name == "ExecutionStatus":
        return _NAMES[row.status] in values
    if name == "CloseTime":
        moment = datetime.fromisoformat(values[0])
        if row.close_time is None:
            return False
        return row.close_time >= moment if operator == ">=" else row.close_time > moment
    found = row.workflow_id if name == "WorkflowId" else row.attributes.get(name)
    if operator in (">", ">="):
        number = int(found) if found is not None else -1
        return number > int(values[0]) or (operator == ">=" and number == int(values[0]))
    return found is not None and str(found) in values


def _closing(run: Run) -> HistoryEvent:
    if run.status == CONTINUED:
        event = HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW)
        event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id = (
            run.next_run_id
        )
        return event
    if run.status == TERMINATED:
        event = HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED)
        event.workflow_execution_terminated_event_attributes.reason = run.reason
        return event
    kind = f"EVENT_TYPE_WORKFLOW_EXECUTION_{run.status}"
    return HistoryEvent(event_type=EventType.Value(kind))


def _status(run: Run) -> WorkflowExecutionStatus:
    return WorkflowExecutionStatus[run.status]


def _encoded(attributes: TypedSearchAttributes | None) -> dict[str, Payload]:
    found = SearchAttributes()
    if attributes is not None:
        encode_search_attributes(attributes, found)
    return dict(found.indexed_fields.items())


def _decoded(fields: Mapping[str, Payload]) -> TypedSearchAttributes:
    return decode_typed_search_attributes(SearchAttributes(indexed_fields=fields))


def _unavailable(why: str) -> RPCError:
    return RPCError(why, RPCStatusCode.UNAVAILABLE, b"")


def _again(effect: Callable[[], Any]) -> None:
    """Deliver a message again. A receiver that has ended rejects it."""
    with contextlib.suppress(RPCError, WorkflowAlreadyStartedError):
        effect()
