"""How long each class of activity may take, and how it is repeated.

No limit here ends a wait for good: where attempts are bounded, the workflow reports the failure in a condition and starts again.
"""

from datetime import timedelta

from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType, ActivityConfig, LocalActivityConfig

from api_types import queues

# One signal, query or start of another entity: quick, local, retried until the server accepts it.
ENTITY_CALL = LocalActivityConfig(
    start_to_close_timeout=timedelta(seconds=10),
    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=10)),
)

# The same for many entities: a normal activity, so that the workflow task does not wait for all of them.
ENTITY_BATCH = ActivityConfig(
    task_queue=queues.WORKFLOWS,
    start_to_close_timeout=timedelta(seconds=60),
    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=10)),
)

# One pure decision over the live ledger. It never waits: more than a few seconds mean a bug, or a very busy worker.
DECIDE = LocalActivityConfig(
    start_to_close_timeout=timedelta(seconds=30),
    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=5), maximum_attempts=3),
)

# A pass over the whole cache of the scheduler: seconds with 100,000 replicas, more on a machine that has other work.
WHOLE_CACHE = LocalActivityConfig(
    start_to_close_timeout=timedelta(minutes=2),
    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_attempts=3),
)

# A call to a cluster that answers at once or fails. After two minutes the workflow reports the failure and starts again.
CLUSTER_CALL = ActivityConfig(
    start_to_close_timeout=timedelta(seconds=120),
    schedule_to_close_timeout=timedelta(seconds=120),
    heartbeat_timeout=timedelta(seconds=30),
    retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=15)),
    cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
)

# One request to an external service. A minute without a response counts as a failure.
EXTERNAL_CALL = ActivityConfig(
    start_to_close_timeout=timedelta(seconds=30),
    schedule_to_close_timeout=timedelta(seconds=60),
    retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=15)),
)

# An apply. Hundreds may be due at once and wait, in the task queue and then for the cluster's rate limit. Neither is a failure, so the
# queue has a limit of its own, and heartbeats tell a slow apply from a dead one. Four failures in a row, some ten seconds, end the attempt.
APPLY = ActivityConfig(
    schedule_to_start_timeout=timedelta(minutes=10),
    start_to_close_timeout=timedelta(minutes=10),
    heartbeat_timeout=timedelta(seconds=30),
    retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=5), maximum_attempts=4),
    cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
)

# One attempt at a step of a teardown, which returns by itself after its poll timeout. Three failures in a row end the attempt.
TEARDOWN_STEP = ActivityConfig(
    start_to_close_timeout=timedelta(minutes=15),
    heartbeat_timeout=timedelta(seconds=30),
    retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=5), maximum_attempts=3),
    cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
)

# A wait until objects are gone, or until a Secret is there: effectively without a limit, but with heartbeats.
LONG_WAIT = ActivityConfig(
    start_to_close_timeout=timedelta(days=7),
    heartbeat_timeout=timedelta(seconds=30),
    retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(minutes=1)),
    cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
)

# Watching a cluster for as long as this run of its workflow lasts.
WATCH = ActivityConfig(
    start_to_close_timeout=timedelta(days=30),
    heartbeat_timeout=timedelta(seconds=30),
    retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30)),
    cancellation_type=ActivityCancellationType.TRY_CANCEL,
)

# What the Temporal UI shows in one line.
SUMMARY_MAX = 100


def local(config: LocalActivityConfig, summary: str) -> LocalActivityConfig:
    """Give the options of one local activity, with a one-line summary."""
    return LocalActivityConfig(**{**config, "summary": summary[:SUMMARY_MAX]})


def remote(config: ActivityConfig, summary: str, task_queue: str = "") -> ActivityConfig:
    """Give the options of one activity, with a one-line summary, on another task queue if one is given."""
    queue: ActivityConfig = {"task_queue": task_queue} if task_queue else {}
    return ActivityConfig(**{**config, **queue, "summary": summary[:SUMMARY_MAX]})
