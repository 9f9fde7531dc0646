"""How long each class of activity may take, and how it is retried.

No limit here ends a wait permanently. If attempts are bounded, the workflow reports the
failure in a condition and starts again.
"""

from datetime import timedelta
from typing import NamedTuple

from temporalio.common import RetryPolicy
from temporalio.workflow import (
    ActivityCancellationType,
    ActivityConfig,
    LocalActivityConfig,
)

from api_types import queues
from api_types.queues import ClusterWork
from workflows.entity import periods


class ClusterOptions(NamedTuple):
    """The options of an activity on a cluster, with its class of work.

    The class decides the task queue.
    """

    work: ClusterWork
    config: ActivityConfig


# One signal, query or start of another entity: quick, local, retried until the server accepts it.
ENTITY_CALL = LocalActivityConfig(
    start_to_close_timeout=timedelta(seconds=10),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(milliseconds=200),
        maximum_interval=timedelta(seconds=10),
    ),
)

# The same for many entities: a normal activity, so that the workflow task does not wait
# for all of them. The scheduler decides nothing while its answers are sent, so a killed
# worker must be noticed soon. A busy worker may heartbeat some seconds late.
ENTITY_BATCH = ActivityConfig(
    task_queue=queues.WORKFLOWS,
    start_to_close_timeout=timedelta(seconds=60),
    heartbeat_timeout=timedelta(seconds=30),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(milliseconds=200),
        maximum_interval=timedelta(seconds=10),
    ),
)

# A signal to all entities of a kind. The server accepts a hundred signals per second,
# and there may be 100,000 entities.
BROADCAST = ActivityConfig(
    task_queue=queues.WORKFLOWS,
    start_to_close_timeout=timedelta(hours=2),
    heartbeat_timeout=timedelta(seconds=30),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(milliseconds=200),
        maximum_interval=timedelta(seconds=10),
    ),
)


def awaiting() -> ActivityConfig:
    """Return the options of an activity that fails until an object exists.

    It is retried without limit, at growing intervals.
    """
    return ActivityConfig(
        task_queue=queues.WORKFLOWS,
        start_to_close_timeout=timedelta(seconds=10),
        retry_policy=RetryPolicy(
            initial_interval=periods.AWAIT_FIRST, maximum_interval=periods.AWAIT_LONGEST
        ),
    )


# One pure decision over the live ledger. It never waits: more than a few seconds
# indicate a bug, or a very busy worker.
DECIDE = LocalActivityConfig(
    start_to_close_timeout=timedelta(seconds=30),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(milliseconds=200),
        maximum_interval=timedelta(seconds=5),
        maximum_attempts=3,
    ),
)

# A pass over the whole cache of the scheduler. It takes seconds with 100,000 replicas,
# and longer on a busy machine.
WHOLE_CACHE = LocalActivityConfig(
    start_to_close_timeout=timedelta(minutes=2),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(milliseconds=200), maximum_attempts=3
    ),
)

# How long a task of a cluster's base queue waits until the queue counts as unserved. A
# worker always has a slot for such a task (`queues.ClusterWork`), so this is far more
# than a worker needs. Together with a heartbeat timeout it is less than a minute.
UNSERVED_AFTER = timedelta(seconds=20)

# How long a task on another queue of a cluster may wait for a slot. Hundreds may be due
# at once, so the timeout does not mean that no worker runs. The InferenceCluster checks
# for workers. The timeout lets the workflow show the wait, and decide again.
SLOT_WAIT = timedelta(minutes=10)

# Connecting to a cluster, which answers at once or fails. After two minutes the
# workflow reports the failure and starts again.
CONNECT = ClusterOptions(
    ClusterWork.CALL,
    ActivityConfig(
        schedule_to_start_timeout=UNSERVED_AFTER,
        start_to_close_timeout=timedelta(seconds=120),
        schedule_to_close_timeout=timedelta(seconds=120),
        heartbeat_timeout=timedelta(seconds=30),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(seconds=1),
            maximum_interval=timedelta(seconds=15),
        ),
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    ),
)

# A task that does nothing, on a task queue without workers or without free slots. It
# waits without a limit, which costs no history, and ends when a worker takes it.
AWAIT_WORKER = ActivityConfig(
    start_to_close_timeout=timedelta(seconds=10),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=5)
    ),
    cancellation_type=ActivityCancellationType.TRY_CANCEL,
)

# Applying the objects of a cache takes a few quick requests. After six failures in a
# row the workflow reports the last one and starts again.
CACHE_CALL = ClusterOptions(
    ClusterWork.CACHE,
    ActivityConfig(
        schedule_to_start_timeout=SLOT_WAIT,
        start_to_close_timeout=timedelta(seconds=120),
        schedule_to_close_timeout=SLOT_WAIT + timedelta(seconds=120),
        heartbeat_timeout=timedelta(seconds=30),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(seconds=1),
            maximum_interval=timedelta(seconds=15),
            maximum_attempts=6,
        ),
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    ),
)

# One request to an external service. A minute without a response counts as a failure,
# and so do four failures within some ten seconds. The workflow shows the failure and
# starts again.
EXTERNAL_CALL = ClusterOptions(
    ClusterWork.CACHE,
    ActivityConfig(
        start_to_close_timeout=timedelta(seconds=30),
        schedule_to_close_timeout=timedelta(seconds=60),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(seconds=1),
            maximum_interval=timedelta(seconds=15),
            maximum_attempts=4,
        ),
    ),
)

# An apply. Hundreds may be due at once and wait, in the task queue and then for the
# cluster's rate limit. Neither wait is a failure, so the wait in the queue has a
# separate timeout, and heartbeats distinguish a slow apply from a dead worker. Four
# failures in a row, some ten seconds, end the attempt.
APPLY = ClusterOptions(
    ClusterWork.APPLY,
    ActivityConfig(
        schedule_to_start_timeout=SLOT_WAIT,
        start_to_close_timeout=timedelta(minutes=10),
        heartbeat_timeout=timedelta(seconds=30),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(seconds=1),
            maximum_interval=timedelta(seconds=5),
            maximum_attempts=4,
        ),
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    ),
)

# A look-up of the Secrets and ConfigMaps that an apply copies. It fails until all
# exist. It is as short as an apply and uses the slots of applies, because waits may
# fill all slots of the queue for waits for days. A new object is seen within a minute.
AWAIT_COPIES = ClusterOptions(
    ClusterWork.APPLY,
    ActivityConfig(
        start_to_close_timeout=timedelta(seconds=10),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(seconds=3),
            maximum_interval=timedelta(seconds=45),
        ),
        cancellation_type=ActivityCancellationType.TRY_CANCEL,
    ),
)

# One attempt at a step of a teardown, which returns by itself after its poll timeout.
# Three failures in a row end the attempt.
TEARDOWN_STEP = ClusterOptions(
    ClusterWork.TEARDOWN,
    ActivityConfig(
        schedule_to_start_timeout=SLOT_WAIT,
        start_to_close_timeout=timedelta(minutes=15),
        heartbeat_timeout=timedelta(seconds=30),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(seconds=1),
            maximum_interval=timedelta(seconds=5),
            maximum_attempts=3,
        ),
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    ),
)

# The only attempt at a step after a user forced the whole teardown. The user waits for
# its end, even if no worker serves the task queue of the cluster, or the worker hangs.
LAST_TEARDOWN_STEP = ClusterOptions(
    ClusterWork.TEARDOWN,
    ActivityConfig(
        schedule_to_start_timeout=timedelta(seconds=10),
        start_to_close_timeout=timedelta(seconds=15),
        schedule_to_close_timeout=timedelta(seconds=20),
        retry_policy=RetryPolicy(maximum_attempts=1),
        cancellation_type=ActivityCancellationType.TRY_CANCEL,
    ),
)

# One step of a serving stack: a helm run of up to five minutes, or an apply or a
# removal that returns by itself after its poll timeout. The second attempt waits for a
# release that another helm process left pending.
STACK_STEP = ClusterOptions(
    ClusterWork.STACK,
    ActivityConfig(
        schedule_to_start_timeout=SLOT_WAIT,
        start_to_close_timeout=timedelta(minutes=20),
        heartbeat_timeout=timedelta(seconds=30),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(seconds=1),
            maximum_interval=timedelta(seconds=15),
            maximum_attempts=3,
        ),
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    ),
)

# A wait until objects are gone or a Secret exists: practically without a limit, but
# with heartbeats.
LONG_WAIT = ClusterOptions(
    ClusterWork.WAIT,
    ActivityConfig(
        start_to_close_timeout=timedelta(days=7),
        heartbeat_timeout=timedelta(seconds=30),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(seconds=1), maximum_interval=timedelta(minutes=1)
        ),
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    ),
)

# Watching a cluster for as long as this run of its workflow lasts, or waiting until a
# connection succeeds. The heartbeat timeout reveals a lost worker. The next attempt is
# scheduled within seconds, and fails if no worker takes it. Heartbeat, interval and
# schedule-to-start are together less than a minute.
WATCH = ClusterOptions(
    ClusterWork.WATCH,
    ActivityConfig(
        schedule_to_start_timeout=UNSERVED_AFTER,
        start_to_close_timeout=timedelta(days=30),
        heartbeat_timeout=timedelta(seconds=30),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=5)
        ),
        cancellation_type=ActivityCancellationType.TRY_CANCEL,
    ),
)

# The length of a line in the Temporal UI.
SUMMARY_MAX = 100


def local(config: LocalActivityConfig, summary: str) -> LocalActivityConfig:
    """Return the options of one local activity, with a one-line summary."""
    return LocalActivityConfig(**{**config, "summary": summary[:SUMMARY_MAX]})


def remote(config: ActivityConfig, summary: str) -> ActivityConfig:
    """Return the options of one activity, with a one-line summary."""
    return ActivityConfig(**{**config, "summary": summary[:SUMMARY_MAX]})


def on_cluster(
    options: ClusterOptions, summary: str, base_queue: str = ""
) -> ActivityConfig:
    """Return the options of one activity on a cluster, with a one-line summary.

    `base_queue` is `Connection.task_queue`.
    """
    return remote(
        ActivityConfig(
            **{
                **options.config,
                "task_queue": queues.cluster_queue(base_queue, options.work),
            }
        ),
        summary,
    )
