"""The record of the fleet policy: a memo of the scheduler's own workflow.

A scheduler that lost its state reads the memo from the previous run, which the server
keeps for the retention of the namespace. No other workflow has the policy. Without a
record the defaults apply, and the scheduler shows this until a policy is set.
"""

from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.service import RPCError, RPCStatusCode
from temporalio.workflow import ActivityConfig

from api_types import names, queues
from api_types.base import Message
from scheduler import read_policy
from workflows.entity.calls import activity_options
from workflows.entity.calls.refusals import until_accepted
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache

MEMO = "fleetPolicy"

SOUGHT = "the scheduler restarted without state and is looking for the recorded policy"
LOST = (
    "the policy of the previous scheduler was not found, so the defaults apply; "
    "set the policy again. The server keeps the record of a policy "
    "for the retention of its namespace"
)

# The activity makes a few describe calls. The fleet waits for it, as for the rebuild.
_FIND = ActivityConfig(
    task_queue=queues.WORKFLOWS,
    start_to_close_timeout=timedelta(seconds=60),
    heartbeat_timeout=timedelta(seconds=30),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(milliseconds=200),
        maximum_interval=timedelta(seconds=10),
    ),
)


class FindPolicyRecord(Message):
    """Find the newest record of any run except this one."""

    run_id: str


class PolicyRecord(Message):
    """The recorded policy, or None for the defaults.

    `earlier` means that there was an earlier run, with or without a record.
    """

    found: bool = False
    policy: dict[str, Any] | None = None
    earlier: bool = False


@activity.defn
async def find_policy_record(wanted: FindPolicyRecord) -> PolicyRecord:
    """Read the policy from the newest earlier run that recorded one."""
    client = activity.client()
    listed = [
        row
        async for row in client.list_workflows(
            f'WorkflowId = "{names.FLEET_SCHEDULER_ID}"'
        )
    ]
    earlier = sorted(
        (row for row in listed if row.run_id != wanted.run_id),
        key=lambda row: row.start_time,
        reverse=True,
    )
    for row in earlier:
        activity.heartbeat()
        try:
            # Visibility may not have the newest memo yet.
            description = await client.get_workflow_handle(
                row.id, run_id=row.run_id
            ).describe()
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                continue
            raise
        recorded = await description.memo_value(MEMO, None)
        if isinstance(recorded, dict):
            return PolicyRecord(found=True, policy=recorded.get("policy"), earlier=True)
    return PolicyRecord(earlier=bool(earlier))


class PolicyKeeper:
    """Restores the policy after a start without state, and updates its record."""

    def __init__(self, cache: SchedulerCache) -> None:
        self._cache = cache
        # A new run has the memo of the previous run.
        self._recorded: Any = workflow.memo_value(MEMO, None)

    def seek(self) -> None:
        """Show that the policy is not known yet."""
        self._cache.state.policy_lost = SOUGHT

    async def restore(self) -> None:
        """Adopt the policy of the previous scheduler."""
        state = self._cache.state
        wanted, summary = (
            FindPolicyRecord(run_id=workflow.info().run_id),
            "find the fleet policy of an earlier scheduler",
        )
        options = activity_options.remote(_FIND, summary)
        found = await until_accepted(
            lambda: workflow.execute_activity(find_policy_record, wanted, **options),
            summary,
        )
        if found.policy is not None:
            try:
                self._cache.fleet.set_options(read_policy(found.policy))
            except ValueError as error:
                # A later version of the scheduler may have written it, so the record
                # stays.
                state.policy_lost = (
                    f"the recorded policy cannot be read: {error}. The defaults apply"
                )
                return
        state.policy = found.policy
        state.policy_lost = LOST if found.earlier and not found.found else ""
        if found.found:
            self.record()

    def rebuilt(self) -> None:
        """Detect, after a rebuild, a lost policy.

        Replicas without a record were placed by a scheduler that the server has
        deleted.
        """
        state = self._cache.state
        if self._recorded is None and self._cache.fleet.ledger.size:
            state.policy_lost = state.policy_lost or LOST
        if state.policy_lost:
            workflow.logger.warning(
                "the fleet policy is lost", extra={"problem": state.policy_lost}
            )

    def record(self) -> None:
        """Write a changed policy into the memo.

        A lost policy is not recorded as the defaults.
        """
        wanted = {"policy": self._cache.state.policy}
        if wanted != self._recorded and not self._cache.state.policy_lost:
            workflow.upsert_memo({MEMO: wanted})
            self._recorded = wanted
