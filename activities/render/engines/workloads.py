"""Engine workloads: a Deployment for single pods, a LeaderWorkerSet for groups.

Defaults that affect GPUs are written explicitly, so that a newer controller cannot
change them.
"""

from activities.render.objects.manifest import Json
from api_types import labels
from api_types.pins import apiversions

# Loading weights takes long. Exceeding the deadline is a warning, not a failure.
_PROGRESS_DEADLINE_SECONDS = 7200
_REVISION_HISTORY_LIMIT = 2


def deployment(metadata: Json, copies: int, template: Json) -> Json:
    """Return the Deployment of a Standalone engine.

    A copy is only added after another is gone: a surge pod would need an additional GPU
    node that is not reserved, and would stay Pending.
    """
    rolling = {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
    }
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


def leader_worker_set(
    metadata: Json, copies: int, size: int, leader: Json, worker: Json
) -> Json:
    """Return the LeaderWorkerSet of a gang.

    `size` is the number of pods of a group, including its leader.

    If a rank is lost, the whole group is recreated, because a single rank cannot rejoin
    a collective. Followers start with the leader pod, not with its readiness: most
    leaders become ready only when all ranks have joined.
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
                "rollingUpdateConfiguration": {
                    "partition": 0,
                    "maxUnavailable": 1,
                    "maxSurge": 0,
                },
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
