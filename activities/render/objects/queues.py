"""The queues of in-cluster queueing schedulers: how pods and workloads name them.

KAI replaces the scheduler: pods name it and a queue. Kueue admits in front of the scheduler: workloads carry a queue label and nothing
else; `suspend` is never written, because server-side apply would then fight Kueue over it.
"""

from api_types import names
from api_types.pins import apiversions

KAI = "kai"
KUEUE = "kueue"
KAI_SCHEDULER = "kai-scheduler"
KAI_QUEUE = "kai.scheduler/queue"
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
# Group and kind of a tenant's queue, by scheduler; Kueue's is in the tenant's namespace, KAI's in none.
QUEUES = {KAI: ("scheduling.run.ai", "Queue"), KUEUE: (apiversions.KUEUE_GROUP, "LocalQueue")}

# On pods, and not for users: Kueue and KAI take a priority from them that no policy of the fleet has given, and evict others for it.
PRIORITY_LABELS = frozenset({"kueue.x-k8s.io/priority-class", "kai.scheduler/preemptibility", "priorityClassName"})


def queue_name(namespace: str) -> str:
    """Name the queue of a tenant: a KAI Queue, or a LocalQueue of Kueue."""
    return names.tenant_queue(namespace)
