"""How long each class of activity may take, and how it is repeated.

No limit here ends a wait for good: where retries are bounded, the workflow says so in a condition and begins again.
"""

from datetime import timedelta

from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType, ActivityConfig, LocalActivityConfig

from api_types import queues

# A message to another entity: quick, local, repeated until the server takes it.
TELL = LocalActivityConfig(
    start_to_close_timeout=timedelta(seconds=10),
    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=10)),
)

TELL_MANY = ActivityConfig(
    task_queue=queues.WORKFLOWS,
    start_to_close_timeout=timedelta(seconds=60),
    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=10)),
)

# One pure decision over the live ledger. It never waits, so five seconds mean that something is wrong.
DECIDE = LocalActivityConfig(
    start_to_close_timeout=timedelta(seconds=30),
    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=5), maximum_attempts=3),
)

# Work on a cluster that answers at once or fails. After two minutes the workflow says what is wrong and begins again.
ON_CLUSTER = ActivityConfig(
    start_to_close_timeout=timedelta(seconds=120),
    schedule_to_close_timeout=timedelta(seconds=120),
    heartbeat_timeout=timedelta(seconds=30),
    retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=15)),
    cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
)

# One question to a service of somebody else. A minute without an answer is an answer too.
ASK_OUTSIDE = ActivityConfig(
    start_to_close_timeout=timedelta(seconds=30),
    schedule_to_close_timeout=timedelta(seconds=60),
    retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=15)),
)

# An apply. Hundreds may be wanted at once and wait, in the task queue and then for the cluster's rate. Neither is a failure, so the queue
# has a limit of its own, and heartbeats tell a slow apply from a dead one. Four failures in a row, some ten seconds, stand in a condition.
APPLY = ActivityConfig(
    schedule_to_start_timeout=timedelta(minutes=10),
    start_to_close_timeout=timedelta(minutes=10),
    heartbeat_timeout=timedelta(seconds=30),
    retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=5), maximum_attempts=4),
    cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
)

# One look at a step of a teardown, which comes back by itself when its patience ends. Three failures in a row are said in a condition.
TEARDOWN_STEP = ActivityConfig(
    start_to_close_timeout=timedelta(minutes=15),
    heartbeat_timeout=timedelta(seconds=30),
    retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=5), maximum_attempts=3),
    cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
)

# Waiting until something is really gone: no end but the deed, a heartbeat all the while.
UNTIL_GONE = ActivityConfig(
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
_SUMMARY_MAX = 100


def local(config: LocalActivityConfig, summary: str) -> LocalActivityConfig:
    """Give the options of one local activity, with a line for people."""
    return LocalActivityConfig(**{**config, "summary": summary[:_SUMMARY_MAX]})


def remote(config: ActivityConfig, summary: str, task_queue: str = "") -> ActivityConfig:
    """Give the options of one activity, with a line for people, on another queue if one is named."""
    queue: ActivityConfig = {"task_queue": task_queue} if task_queue else {}
    return ActivityConfig(**{**config, **queue, "summary": summary[:_SUMMARY_MAX]})


# What only a person or a new spec can mend is tried again after 1, 2, 4 ... 30 minutes.
_PATIENCE_MINUTES_MAX = 30


def patience(attempt: int) -> timedelta:
    """Give the wait before the next attempt at what only a person or a new spec can mend."""
    return timedelta(minutes=min(2 ** min(attempt, 8), _PATIENCE_MINUTES_MAX))


# The first look is over before somebody wonders; later ones leave time between the words, for each word is history.
_LOOK_SECONDS = (10, 600)


def look_patience(looks: int) -> timedelta:
    """Give how long the next look at a teardown step may take before it says what remains: 10 s doubling to 10 min."""
    shortest, longest = _LOOK_SECONDS
    return timedelta(seconds=min(shortest * 2 ** min(looks, 8), longest))


def soon(attempt: int) -> timedelta:
    """Give the wait before the next attempt at what may heal by itself: 2 s doubling to 2 min."""
    return timedelta(seconds=min(2 * 2 ** min(attempt, 8), 120))
