"""Past decisions of the scheduler, from the history of one of its runs.

A history has all that a decision was made from: the state that the run began with, every message since, and what activities gave. The
decisions themselves are the results of the local activity `decide`. So nothing is recorded for this: the run is replayed, which builds the
cache as it was at each decision, and an interceptor reads the inputs there, before the recorded result comes back.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from temporalio import workflow
from temporalio.worker import (
    Interceptor,
    StartLocalActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from api_types.errors import StaleSnapshot, error_message, error_type
from api_types.messages.scheduling import PlacementRequest
from api_types.payloads.packing import expand
from scheduler import Decision, Fleet, InputsDigest, ScheduleRequest, decide, from_wire
from workflows.fleet_scheduler.decide_activity import DECIDE_NAME, DecideBatch, Decided, schedule_request


@dataclass(frozen=True)
class Outcome:
    """What a request was answered with: a decision, or why it could not be decided."""

    decision: Decision | None = None
    problem: str = ""


@dataclass(frozen=True)
class RecordedDecision:
    """One request as it was decided.

    Attributes:
        batch: the number of the batch in its run, from 1; `position`: that of the request in its batch.
        now: the time that the decision was made with, in ms.
        inputs: the digest of what the decision was made from.
        version: that of the scheduler which decided.
        again: what is decided now from the same inputs; None unless it was asked for.

    """

    batch: int
    position: int
    request: PlacementRequest
    now: int
    inputs: str
    version: str
    recorded: Outcome
    again: Outcome | None = None


Wanted = Callable[[int, int, PlacementRequest], bool]
"""Whether the decision about a request is read, by the number of its batch and its position there."""


class DecisionReader(Interceptor):
    """Reads decisions while a run is replayed; `found` has those that are wanted, in the order in which they were made.

    With `again` each is also made once more, by the code of this program.
    """

    def __init__(self, wanted: Wanted, *, again: bool = False) -> None:
        self.found: list[RecordedDecision] = []
        self.batches = 0
        self._wanted = wanted
        self._again = again
        self._digest = InputsDigest()

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:  # noqa: A002, ARG002 - the SDK's name
        """See the base class."""
        reader = self

        class _Inbound(WorkflowInboundInterceptor):
            def init(self, outbound: WorkflowOutboundInterceptor) -> None:
                super().init(_Outbound(outbound, reader))

        return _Inbound

    def begin(self, batch: DecideBatch, fleet: Fleet) -> Callable[[Decided | None, BaseException | None], None]:
        """Read the inputs of a batch, before the fleet changes; what it gives takes the result."""
        self.batches += 1
        number = self.batches
        read: dict[str, RecordedDecision] = {}
        requests: list[ScheduleRequest] = []
        for position, place in enumerate(batch.requests, 1):
            problem = ""
            try:
                requests.append(schedule_request(place))
            except ValueError as error:
                problem = str(error)
            if not self._wanted(number, position, place):
                continue
            again = None
            if self._again:
                again = Outcome(problem=problem) if problem else _decided_again(fleet, requests, batch.now)
            inputs = self._digest.of(fleet, requests)
            read[place.request_id] = RecordedDecision(number, position, place, batch.now, inputs, "", Outcome(), again)
        return lambda result, error: self._end(read, result, error, alone=len(batch.requests) == 1)

    def _end(self, read: Mapping[str, RecordedDecision], result: Decided | None, error: BaseException | None, *, alone: bool) -> None:
        if result is None:
            # A batch that fails is decided again in smaller ones, and one that met another cache as it is.
            if error is None or not alone or error_type(error) == StaleSnapshot.__name__:
                return
            result = Decided(problems=dict.fromkeys(read, error_message(error)))
        for request_id, each in read.items():
            outcome = _outcome(result, request_id)
            if outcome is not None:
                self.found.append(replace(each, version=result.scheduler_version, recorded=outcome))


def _decided_again(fleet: Fleet, requests: Sequence[ScheduleRequest], now: int) -> Outcome:
    """Decide the last of some requests, after the others as their batch did."""
    try:
        return Outcome(decide(fleet, requests, now)[-1])
    except Exception as error:  # noqa: BLE001 - whatever it is, the activity failed with it too, or this is a difference
        return Outcome(problem=str(error))


def _outcome(result: Decided, request_id: str) -> Outcome | None:
    """Give what was answered; None for a request that was left to a later batch."""
    if request_id in result.decisions:
        return Outcome(from_wire(Decision, expand(result.decisions[request_id])))
    return Outcome(problem=result.problems[request_id]) if request_id in result.problems else None


class _Outbound(WorkflowOutboundInterceptor):
    def __init__(self, following: WorkflowOutboundInterceptor, reader: DecisionReader) -> None:
        super().__init__(following)
        self._reader = reader

    def start_local_activity(self, input: StartLocalActivityInput) -> workflow.ActivityHandle[Any]:  # noqa: A002 - the SDK's name
        if input.activity != DECIDE_NAME:
            return super().start_local_activity(input)
        # The workflow itself, and not `cache_registry`: where a worker runs in the same process, that may have its cache.
        end = self._reader.begin(input.args[0], workflow.instance().cache.fleet)
        handle = super().start_local_activity(input)

        def ended(done: workflow.ActivityHandle[Any]) -> None:
            if not done.cancelled():
                error = done.exception()
                end(None if error else done.result(), error)

        handle.add_done_callback(ended)
        return handle
