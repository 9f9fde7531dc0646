"""The queues of in-cluster queueing schedulers: how pods and workloads name them.

KAI replaces the scheduler: pods name it and a queue. Kueue admits in front of the scheduler: workloads carry a queue label and nothing
else; `suspend` is never written, because server-side apply would then fight Kueue over it.
"""

from api_types import names

KAI = "kai"
KUEUE = "kueue"
KAI_SCHEDULER = "kai-scheduler"
KAI_QUEUE = "kai.scheduler/queue"
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"

# On pods, and not for users: Kueue and KAI take a priority from them that no policy of the fleet has given, and evict others for it.
PRIORITY_LABELS = frozenset({"kueue.x-k8s.io/priority-class", "kai.scheduler/preemptibility", "priorityClassName"})


def queue_name(namespace: str) -> str:
    """Name the queue of a tenant: a KAI Queue, or a LocalQueue of Kueue."""
    return names.tenant_queue(namespace)
