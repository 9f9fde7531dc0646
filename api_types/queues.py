"""The task queues of Temporal, and what runs on which.

They are constants, not settings: workflow code names them, and what it names must be the same on every replay.

What workflows do on clusters has several task queues, one per class of work, each with slots of its own. On one shared queue a watch, which
lasts as long as its cluster, or a teardown that waits for a finalizer would hold the slots that an apply needs. The names of all classes
come from one base queue: `modelplane-clusters`, or the annotation `modelplane.ai/task-queue` of an InferenceCluster, which moves everything
that is done on that cluster to the workers that serve another base queue.
"""

from enum import StrEnum

WORKFLOWS = "modelplane"
SCHEDULER = "modelplane-scheduler"
CLUSTERS = "modelplane-clusters"
CLOUD = "modelplane-cloud"


class ClusterWork(StrEnum):
    """The classes of work on clusters. The value is the suffix of the task queue; short calls run on the base queue itself.

    The base queue gets at most one task per cluster at a time, and each ends soon. So a task that waits there means that no worker
    serves it, while a task on any other class's queue may be waiting for a slot.
    """

    CALL = ""
    WATCH = "watch"
    APPLY = "apply"
    TEARDOWN = "teardown"
    CACHE = "cache"
    STACK = "stack"
    WAIT = "wait"


# Temporal takes at most 1,000 bytes, with the suffix; a command that names another one fails the task of its workflow, again and again.
NAME_BYTES_MAX = 250
_RESERVED = "/_sys/"

_SUFFIXES = tuple(f"-{work}" for work in ClusterWork if work)


def cluster_queue(base: str, work: ClusterWork) -> str:
    """Name the task queue of a class of work; an empty base is the default one."""
    base = base or CLUSTERS
    return f"{base}-{work}" if work else base


def cluster_queues(base: str) -> dict[str, ClusterWork]:
    """Name the task queues of all classes of work of a base queue."""
    return {cluster_queue(base, work): work for work in ClusterWork}


def served_queues(name: str) -> dict[str, ClusterWork]:
    """Name the task queues for cluster work that a worker serves which is told to serve `name`: all of a base queue, or one class's."""
    for suffix in _SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            return {name: ClusterWork(suffix.removeprefix("-"))}
    return cluster_queues(name)


def base_queue_problem(name: str) -> str:
    """Say why a name cannot be that of a base queue; empty if it can."""
    if not name:
        return "must not be empty; name a task queue or remove the annotation"
    if name in (WORKFLOWS, SCHEDULER, CLOUD):
        return f'must not be "{name}", which is the task queue of {"calls to clouds" if name == CLOUD else "workflows"}; name another one'
    if len(name.encode()) > NAME_BYTES_MAX or not name.isprintable() or name.startswith(_RESERVED):
        return f'must be at most {NAME_BYTES_MAX} bytes, printable, and not start with "{_RESERVED}": Temporal takes no other name'
    suffix = next((suffix for suffix in _SUFFIXES if name.endswith(suffix)), "")
    return f'must not end with "{suffix}", which is added for one class of work; name another one' if suffix else ""
