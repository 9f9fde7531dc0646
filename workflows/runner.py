"""The guards around the sandbox in which every workflow runs.

A start with unreadable arguments fails the workflow. Otherwise its first task would
fail repeatedly, and the run would hold the id indefinitely. A request to cancel a
workflow becomes a signal. Otherwise the SDK would end the workflow at an arbitrary
point, and its objects would stay on clusters.

A query waits for the worker that has the workflow in its cache. If this takes longer
than the timeout of the sticky queue, the server offers the query to any worker, with
the whole history and the events after the last workflow task. The SDK applies these
events to a workflow in its cache, which then decides before its next task has started.
The order of its commands then differs from that in any replay. This module rejects such
an activation: the query fails, the run leaves the cache, and its next task replays the
history. `fleet_client/temporal/queries.py` sends such a query again.
"""

import json
from typing import Any

from temporalio.bridge.proto.workflow_activation import (
    InitializeWorkflow,
    WorkflowActivation,
    WorkflowActivationJob,
)
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import WorkflowSerializationContext
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.workflow import Info

from api_types.errors import QUERY_REFUSED, InvalidInput
from api_types.messages.signals import CANCEL_REQUESTED
from api_types.payloads import unreadable
from api_types.payloads.limits import shortened
from workflows.entity.start import is_continued

_CHANGES_NOTHING = {"query_workflow", "remove_from_cache"}
_PROBLEM_BYTES_MAX = 1000


class CheckingRunner(WorkflowRunner):
    """A runner that rejects unreadable starts, and turns cancellations into signals."""

    def __init__(self, inner: WorkflowRunner) -> None:
        self._inner = inner

    def prepare_workflow(self, defn: Any) -> None:
        self._inner.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return _CheckedInstance(self._inner.create_instance(det), det)

    def set_worker_level_failure_exception_types(self, types: Any) -> None:
        self._inner.set_worker_level_failure_exception_types(types)


class GuardedRunner(CheckingRunner):
    """A runner whose workflows make progress only in workflow tasks."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return _GuardedInstance(self._inner.create_instance(det))


class _Wrapped(WorkflowInstance):
    def __init__(self, inner: WorkflowInstance) -> None:
        self._inner = inner

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        return self._inner.activate(act)

    def get_serialization_context(self, command_info: Any) -> Any:
        return self._inner.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> Any:
        return self._inner.get_external_store_context(command_info)

    def get_info(self) -> Info:
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        return self._inner.get_thread_id()


class _CheckedInstance(_Wrapped):
    def __init__(self, inner: WorkflowInstance, det: WorkflowInstanceDetails) -> None:
        super().__init__(inner)
        self._details = det
        self._context = WorkflowSerializationContext(
            namespace=det.info.namespace, workflow_id=det.info.workflow_id
        )

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        for job in act.jobs:
            if job.HasField("cancel_workflow"):
                _become_signal(job)
            elif job.HasField("initialize_workflow") and (
                problem := self._start_problem(act, job.initialize_workflow)
            ):
                return _failed(act.run_id, problem)
        return self._inner.activate(act)

    def _start_problem(self, act: WorkflowActivation, start: InitializeWorkflow) -> str:
        """Return why the arguments of a start cannot be read; empty if they can."""
        if act.is_replaying or is_continued(self._details.info):
            # Such arguments were readable before, or this workflow has written them.
            # The task must wait for a missing key.
            return ""
        for number, payload in enumerate(start.arguments, 1):
            if payload.metadata.get("encoding") == unreadable.ENCODING:
                problem = payload.metadata.get(unreadable.PROBLEM, b"")
                return f"start argument {number}: {problem.decode(errors='replace')}"
            try:
                self._details.payload_converter_factory().from_payloads([payload])
            except Exception as error:  # noqa: BLE001 - any client may have sent the bytes
                return f"start argument {number}: it cannot be decoded: {error}"
        return ""

    def get_serialization_context(
        self,
        command_info: Any,  # noqa: ARG002
    ) -> WorkflowSerializationContext:
        # Codecs bind payloads to the workflow, not to its activities. The SDK would
        # enter the sandbox for each payload, which takes a tenth of a worker's time.
        return self._context


class _GuardedInstance(_Wrapped):
    def __init__(self, inner: WorkflowInstance) -> None:
        super().__init__(inner)
        self._task_bytes = -1
        self._events = 0

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        if self._advances_without_task(act):
            refused = WorkflowActivationCompletion(run_id=act.run_id)
            refused.failed.failure.message = QUERY_REFUSED
            return refused
        self._task_bytes, self._events = act.history_size_bytes, act.history_length
        return super().activate(act)

    def _advances_without_task(self, act: WorkflowActivation) -> bool:
        # The start of a task records the size of the history, and every task adds some
        # bytes. So further events at the same size belong to no task. The time of the
        # task cannot be used: the server's clock may step back, and then the SDK
        # repeats the time of the previous task. Within a task, local activities end
        # while the size of the history stays the same.
        if (
            act.history_length <= self._events
            or act.history_size_bytes != self._task_bytes
        ):
            return False
        return any(
            job.WhichOneof("variant") not in _CHANGES_NOTHING for job in act.jobs
        )


def _become_signal(job: WorkflowActivationJob) -> None:
    reason = job.cancel_workflow.reason
    job.signal_workflow.signal_name = CANCEL_REQUESTED
    job.signal_workflow.input.add(
        metadata={"encoding": b"json/plain"},
        data=json.dumps({"reason": reason}).encode(),
    )


def _failed(run_id: str, problem: str) -> WorkflowActivationCompletion:
    completion = WorkflowActivationCompletion(run_id=run_id)
    failure = completion.successful.commands.add().fail_workflow_execution.failure
    failure.message = shortened(problem, _PROBLEM_BYTES_MAX)
    failure.application_failure_info.type = InvalidInput.__name__
    failure.application_failure_info.non_retryable = True
    return completion
