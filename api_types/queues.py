"""The task queues of Temporal, and the work on each.

They are constants rather than settings: workflow code refers to them, and must refer to
the same queues on every replay.

Work on clusters has several task queues, one per class of work, each with its own
slots. On one shared queue, a watch that lasts as long as its cluster, or a teardown
that waits for a finalizer, would occupy the slots that an apply needs. The names of all
classes are derived from one base queue: `modelplane-clusters`, or the annotation
`modelplane.ai/task-queue` of an InferenceCluster, which moves all work on that cluster
to the workers of another base queue.
"""

from enum import StrEnum

WORKFLOWS = "modelplane"
SCHEDULER = "modelplane-scheduler"
CLUSTERS = "modelplane-clusters"
CLOUD = "modelplane-cloud"


class ClusterWork(StrEnum):
    """The classes of work on clusters.

    The value is the suffix of the task queue. Short calls run on the base queue itself,
    which gets at most one task per cluster at a time, and each of these tasks ends
    soon. If a task waits there, no worker serves the queue. A task that waits on the
    queue of another class may only wait for a slot.
    """

    CALL = ""
    WATCH = "watch"
    APPLY = "apply"
    TEARDOWN = "teardown"
    CACHE = "cache"
    STACK = "stack"
    WAIT = "wait"


# Temporal limits names to 1,000 bytes, with the suffix. A command with a longer name
# fails its workflow task again and again.
NAME_BYTES_MAX = 250
_RESERVED = "/_sys/"

_SUFFIXES = tuple(f"-{work}" for work in ClusterWork if work)


def cluster_queue(base: str, work: ClusterWork) -> str:
    """Return the task queue of a class of work; an empty base is the default one."""
    base = base or CLUSTERS
    return f"{base}-{work}" if work else base


def cluster_queues(base: str) -> dict[str, ClusterWork]:
    """Return the task queues of all classes of work of a base queue."""
    return {cluster_queue(base, work): work for work in ClusterWork}


def served_queues(name: str) -> dict[str, ClusterWork]:
    """Return the task queues of a worker that is configured to serve `name`.

    They are all queues of a base queue, or the queue of one class of work.
    """
    for suffix in _SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            return {name: ClusterWork(suffix.removeprefix("-"))}
    return cluster_queues(name)


def base_queue_problem(name: str) -> str:
    """Return the reason why a name is not a valid base queue, or ""."""
    if not name:
        return "must not be empty; name a task queue or remove the annotation"
    if name in (WORKFLOWS, SCHEDULER, CLOUD):
        work = "calls to clouds" if name == CLOUD else "workflows"
        return f'must not be "{name}", which is the task queue for {work}; use another name'
    if (
        len(name.encode()) > NAME_BYTES_MAX
        or not name.isprintable()
        or name.startswith(_RESERVED)
    ):
        return (
            f"must be at most {NAME_BYTES_MAX} bytes, printable, "
            f'and not start with "{_RESERVED}": Temporal accepts no other name'
        )
    suffix = next((suffix for suffix in _SUFFIXES if name.endswith(suffix)), "")
    if not suffix:
        return ""
    return (
        f'must not end with "{suffix}", which is added for one class of work; '
        "use another name"
    )
