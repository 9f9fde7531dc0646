"""Past decisions of the scheduler, from the history of one of its runs.

A history contains all inputs of a decision: the state at the start of the run, every
message since, and the results of activities. The decisions are the results of the local
activity `decide`. So nothing else is recorded: a replay of the run builds the cache of
each decision, and an interceptor reads the inputs before the recorded result returns.
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
from workflows.fleet_scheduler.decide_activity import (
    DECIDE_NAME,
    DecideBatch,
    Decided,
    schedule_request,
)


@dataclass(frozen=True)
class DecisionOutcome:
    """The answer to a request: a decision, or why the request could not be decided."""

    decision: Decision | None = None
    problem: str = ""


@dataclass(frozen=True)
class RecordedDecision:
    """One decided request.

    Attributes:
        batch: the number of the batch in its run, from 1.
        position: the position of the request in its batch.
        now: the time of the decision in milliseconds.
        inputs: the digest of the inputs of the decision.
        version: the version of the scheduler that decided.
        again: the present decision on the same inputs; None unless requested.

    """

    batch: int
    position: int
    request: PlacementRequest
    now: int
    inputs: str
    version: str
    recorded: DecisionOutcome
    again: DecisionOutcome | None = None


Wanted = Callable[[int, int, PlacementRequest], bool]
"""Returns whether to read a decision, by the number of its batch, its position there
and its request.
"""


class DecisionReader(Interceptor):
    """Reads decisions while a run is replayed.

    `found` has the wanted decisions, in the order in which they were made. With
    `again`, the code of this program makes each decision once more.
    """

    def __init__(self, wanted: Wanted, *, again: bool = False) -> None:
        self.found: list[RecordedDecision] = []
        self.batches = 0
        self._wanted = wanted
        self._again = again
        self._digest = InputsDigest()

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002, ARG002 - the SDK's name
    ) -> type[WorkflowInboundInterceptor]:
        reader = self

        class _Inbound(WorkflowInboundInterceptor):
            def init(self, outbound: WorkflowOutboundInterceptor) -> None:
                super().init(_Outbound(outbound, reader))

        return _Inbound

    def begin(
        self, batch: DecideBatch, fleet: Fleet
    ) -> Callable[[Decided | None, BaseException | None], None]:
        """Read the inputs of a batch, before the fleet changes.

        The returned function takes the result of the batch.
        """
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
                again = (
                    DecisionOutcome(problem=problem)
                    if problem
                    else _decided_again(fleet, requests, batch.now)
                )
            inputs = self._digest.of(fleet, requests)
            read[place.request_id] = RecordedDecision(
                number, position, place, batch.now, inputs, "", DecisionOutcome(), again
            )
        return lambda result, error: self._end(
            read, result, error, alone=len(batch.requests) == 1
        )

    def _end(
        self,
        read: Mapping[str, RecordedDecision],
        result: Decided | None,
        error: BaseException | None,
        *,
        alone: bool,
    ) -> None:
        if result is None:
            # A failed batch is decided again in smaller batches. A batch that met
            # another cache is decided again as it is.
            if (
                error is None
                or not alone
                or error_type(error) == StaleSnapshot.__name__
            ):
                return
            result = Decided(problems=dict.fromkeys(read, error_message(error)))
        for request_id, each in read.items():
            outcome = _outcome(result, request_id)
            if outcome is not None:
                self.found.append(
                    replace(each, version=result.scheduler_version, recorded=outcome)
                )


def _decided_again(
    fleet: Fleet, requests: Sequence[ScheduleRequest], now: int
) -> DecisionOutcome:
    """Decide the last of some requests, after the others as their batch did."""
    try:
        return DecisionOutcome(decide(fleet, requests, now)[-1])
    except Exception as error:  # noqa: BLE001 - the problem is the result
        return DecisionOutcome(problem=str(error))


def _outcome(result: Decided, request_id: str) -> DecisionOutcome | None:
    """Return the answer to a request; None if a later batch decides the request."""
    if request_id in result.decisions:
        return DecisionOutcome(
            from_wire(Decision, expand(result.decisions[request_id]))
        )
    return (
        DecisionOutcome(problem=result.problems[request_id])
        if request_id in result.problems
        else None
    )


class _Outbound(WorkflowOutboundInterceptor):
    def __init__(
        self, following: WorkflowOutboundInterceptor, reader: DecisionReader
    ) -> None:
        super().__init__(following)
        self._reader = reader

    def start_local_activity(
        self,
        input: StartLocalActivityInput,  # noqa: A002 - the SDK's name
    ) -> workflow.ActivityHandle[Any]:
        if input.activity != DECIDE_NAME:
            return super().start_local_activity(input)
        # This reads the cache of the workflow. `cache_registry` may hold the cache of a
        # worker in the same process.
        end = self._reader.begin(input.args[0], workflow.instance().cache.fleet)
        handle = super().start_local_activity(input)

        def ended(done: workflow.ActivityHandle[Any]) -> None:
            if not done.cancelled():
                error = done.exception()
                end(None if error else done.result(), error)

        handle.add_done_callback(ended)
        return handle
