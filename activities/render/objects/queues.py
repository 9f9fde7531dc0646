"""The queues of in-cluster queueing schedulers, and how pods and workloads name them.

KAI replaces the scheduler: pods name it and a queue. Kueue admits workloads before
scheduling: they carry a queue label only. `suspend` is never written, because
server-side apply would then conflict with Kueue.
"""

from api_types import names
from api_types.pins import apiversions

KAI = "kai"
KUEUE = "kueue"
KAI_SCHEDULER = "kai-scheduler"
KAI_QUEUE = "kai.scheduler/queue"
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
# Group and kind of a tenant's queue, by scheduler. Kueue's queue is in the tenant's
# namespace; KAI's is cluster-scoped.
QUEUES = {
    KAI: ("scheduling.run.ai", "Queue"),
    KUEUE: (apiversions.KUEUE_GROUP, "LocalQueue"),
}

# Users must not set these labels on pods: Kueue and KAI read a priority from them that
# no fleet policy has granted, and would evict other pods because of it.
PRIORITY_LABELS = frozenset(
    {
        "kueue.x-k8s.io/priority-class",
        "kai.scheduler/preemptibility",
        "priorityClassName",
    }
)


def queue_name(namespace: str) -> str:
    """Return the name of a tenant's queue: a KAI Queue, or a LocalQueue of Kueue."""
    return names.tenant_queue(namespace)
