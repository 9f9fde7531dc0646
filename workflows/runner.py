"""The sandbox in which every workflow runs, and its guard against histories that advance where no workflow task began.

A query waits for the worker that has the workflow in its cache. When that takes longer than the sticky queue waits, the server offers the
query to any worker, now with the whole history: also with what came after the last workflow task. The SDK applies that to a workflow in its
cache, which so decides before its next task has started; what it records then is in another order than any replay. Such an activation is
refused here: the query fails, the run leaves the cache, and its next task replays the history as it is. `client/temporal/queries.py` sends
such a query again.
"""

from typing import Any

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.workflow import Info

from api_types.errors import QUERY_REFUSED

_CHANGES_NOTHING = {"query_workflow", "remove_from_cache"}


class GuardedRunner(WorkflowRunner):
    """Another runner, whose workflows only advance with a workflow task."""

    def __init__(self, inner: WorkflowRunner) -> None:
        self._inner = inner

    def prepare_workflow(self, defn: Any) -> None:
        """See the base class."""
        self._inner.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """See the base class."""
        return _GuardedInstance(self._inner.create_instance(det))

    def set_worker_level_failure_exception_types(self, types: Any) -> None:
        """See the base class."""
        self._inner.set_worker_level_failure_exception_types(types)


class _GuardedInstance(WorkflowInstance):
    def __init__(self, inner: WorkflowInstance) -> None:
        self._inner = inner
        self._task_bytes = -1
        self._events = 0

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        if self._advances_without_task(act):
            refused = WorkflowActivationCompletion(run_id=act.run_id)
            refused.failed.failure.message = QUERY_REFUSED
            return refused
        self._task_bytes, self._events = act.history_size_bytes, act.history_length
        return self._inner.activate(act)

    def _advances_without_task(self, act: WorkflowActivation) -> bool:
        # The start of a task records how many bytes the history had, and every task adds some: more events with the same bytes are of no
        # task. Its time would not tell, for the server's clock may step back, and then the SDK gives the time of the task before. Within a
        # task, local activities end and the history stays as it is.
        if act.history_length <= self._events or act.history_size_bytes != self._task_bytes:
            return False
        return any(job.WhichOneof("variant") not in _CHANGES_NOTHING for job in act.jobs)

    def get_serialization_context(self, command_info: Any) -> None:  # noqa: ARG002
        # No converter of ours looks at it, and to compute it takes a visit to the sandbox for each payload: a tenth of a worker's time.
        return None

    def get_external_store_context(self, command_info: Any) -> Any:
        return self._inner.get_external_store_context(command_info)

    def get_info(self) -> Info:
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        return self._inner.get_thread_id()
