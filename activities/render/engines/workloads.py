"""Engine workloads: a Deployment for one pod per copy, a LeaderWorkerSet for a group of pods per copy.

Defaults that decide about GPUs are written out, so that a newer controller cannot choose otherwise.
"""

from activities.render.objects.manifest import Json
from api_types import labels
from api_types.pins import apiversions

# Weights take a while to load. A passed deadline is a warning, not a failure.
_PROGRESS_DEADLINE_SECONDS = 7200
_REVISION_HISTORY_LIMIT = 2


def deployment(metadata: Json, copies: int, template: Json) -> Json:
    """Give the Deployment of a Standalone engine.

    No copy is ever added before one is gone: a surge pod needs a GPU node that is not reserved, and would stay Pending.
    """
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    return {
        "apiVersion": apiversions.APPS,
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": copies,
            "selector": {"matchLabels": {labels.WORKLOAD: metadata["name"]}},
            "strategy": {"type": "Recreate"} if copies == 1 else rolling,
            "progressDeadlineSeconds": _PROGRESS_DEADLINE_SECONDS,
            "revisionHistoryLimit": _REVISION_HISTORY_LIMIT,
            "template": template,
        },
    }


def leader_worker_set(metadata: Json, copies: int, size: int, leader: Json, worker: Json) -> Json:
    """Give the LeaderWorkerSet of a gang; `size` counts the pods of one group, leader included.

    A lost rank rebuilds its whole group, since a lone one cannot rejoin a collective. Followers start with the leader pod, not with its
    readiness: most leaders become ready only when all ranks have joined.
    """
    return {
        "apiVersion": apiversions.LEADER_WORKER_SET,
        "kind": "LeaderWorkerSet",
        "metadata": metadata,
        "spec": {
            "replicas": copies,
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"partition": 0, "maxUnavailable": 1, "maxSurge": 0},
            },
            "networkConfig": {"subdomainPolicy": "Shared"},
            "leaderWorkerTemplate": {
                "size": size,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": leader,
                "workerTemplate": worker,
            },
        },
    }
