"""The states of a fleet that the page must explain, each as objects and health.

Tests, screenshots for the docs and the benchmark show the same states.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from api_types.clock import timestamp, utc_now
from front.scaling.numbers import Told
from front.store.projection import Projection, Tree
from tests.client.planning.fake_plane import FakePlane
from tests.front.shown_fleet import (
    START,
    a_cluster,
    a_deployment,
    a_replica,
    a_service,
    an_object,
    condition,
    put,
)

REGION = "modelplane.ai/region"
DEVICE = {
    "name": "gpu",
    "driver": "gpu.nvidia.com",
    "deviceClassName": "gpu.nvidia.com",
    "count": 8,
}


@dataclass
class ShownState:
    """A fleet, and whether Temporal and the workers answer.

    Without a plane the scheduler does not answer.
    """

    projection: Projection
    temporal_silent: bool = False
    workers_silent: bool = False
    plane: FakePlane | None = None
    prometheus: str = ""
    """The address of Prometheus."""
    told: Told = field(default_factory=lambda: Told(timedelta(minutes=2)))
    expected: tuple[str, ...] = ()
    """Texts that the page shows in its list of problems."""
    absent: tuple[str, ...] = field(default=())


def recently() -> str:
    return timestamp(utc_now())


def _fleet(*trees: Tree) -> Projection:
    made = Projection()
    put(made, *trees)
    made.complete = True
    return made


def in_region(tree: Tree, region: str) -> Tree:
    tree["metadata"]["labels"] = {REGION: region}
    return tree


def an_event(reason: str, message: str, kind: str = "Normal") -> Tree:
    now = recently()
    return {
        "type": kind,
        "reason": reason,
        "message": message,
        "count": 1,
        "first": now,
        "last": now,
    }


def _others() -> list[Tree]:
    """Return a cache, a class, a gateway and an endpoint, all Ready."""
    ready = {"conditions": [condition()]}
    return [
        an_object(
            "ModelCache",
            "qwen",
            "team-a",
            spec={
                "source": "HuggingFace",
                "huggingFace": {"repo": "Qwen/Qwen3-8B", "sizeGiB": 40},
            },
            status={**ready, "summary": {"ready": "2/2"}},
        ),
        an_object(
            "InferenceClass",
            "h100-8x",
            spec={"devices": [DEVICE]},
            status={**ready, "clusters": ["eu"]},
        ),
        an_object(
            "InferenceGateway",
            "default",
            spec={"backend": "Envoy"},
            status={**ready, "address": "10.0.0.1"},
        ),
        an_object(
            "ModelEndpoint",
            "hosted",
            "team-a",
            spec={"url": "https://models.example/v1"},
            status=ready,
        ),
    ]


def _healthy() -> list[Tree]:
    deployment = a_deployment(
        "chat",
        wanted=2,
        ready=2,
        events=[an_event("ReplicaPlaced", "chat-eu-0 on eu: most free nodes")],
        placements=[
            {"replica": "chat-eu-0", "cluster": "eu"},
            {"replica": "chat-us-0", "cluster": "us"},
        ],
    )
    return [
        in_region(a_cluster("eu"), "europe-west4"),
        in_region(a_cluster("us"), "us-east1"),
        deployment,
        a_replica("chat-eu-0", "chat", "eu"),
        a_replica("chat-us-0", "chat", "us"),
        a_service("chat"),
        *_others(),
    ]


def empty() -> ShownState:
    return ShownState(_fleet(), absent=("Act",))


def healthy() -> ShownState:
    return ShownState(_fleet(*_healthy()), absent=("Act",))


def full() -> ShownState:
    """Every node has a replica, and a deployment waits for a place."""
    reason = "pool gpus of eu: 0 of 4 nodes are free, 1 needed"
    waiting = [
        condition("False", "InsufficientCapacity", reason, "ReplicasScheduled"),
        condition("False", "InsufficientCapacity", reason),
    ]
    replicas = [a_replica(f"chat-eu-{n}", "chat", "eu") for n in range(4)]
    return ShownState(
        _fleet(
            in_region(a_cluster("eu"), "europe-west4"),
            a_deployment("chat", wanted=4, ready=4),
            *replicas,
            a_deployment(
                "code",
                wanted=1,
                ready=0,
                conditions=tuple(waiting),
                replicas={"total": 0, "ready": 0},
            ),
        ),
        expected=("team-a/code", reason, "modelplane explain md/code -n team-a"),
    )


def drained() -> ShownState:
    """A cluster is drained; that is no problem, and its nodes are not free."""
    trees = _healthy()
    trees[0]["status"]["conditions"].append(
        condition("True", "Drained", "drained by ann", "SchedulingDisabled")
    )
    return ShownState(_fleet(*trees), absent=("Act",))


def silent_cluster() -> ShownState:
    """A cluster does not answer, and so its replica does not either."""
    trees = _healthy()
    trees[1] = in_region(a_cluster("us", ready=False), "us-east1")
    trees[4] = a_replica(
        "chat-us-0",
        "chat",
        "us",
        phase="Unreachable",
        conditions=[condition("False", "ClusterUnreachable", "us does not answer")],
    )
    return ShownState(
        _fleet(*trees),
        expected=(
            "InferenceCluster us",
            "the API server does not answer",
            "check that the worker can reach the API server",
        ),
        absent=("us does not answer",),
    )


def bad_rollout() -> ShownState:
    """The first replica of a rollout cannot pull its image."""
    trees = _healthy()
    trees[2]["status"] |= {
        "rollout": {
            "templateGeneration": 2,
            "updated": 1,
            "updatedReady": 0,
            "total": 2,
            "revisions": [1],
        },
        "replicas": {"total": 2, "ready": 1},
    }
    trees[3] = a_replica(
        "chat-eu-0",
        "chat",
        "eu",
        phase="Starting",
        conditions=[condition("False", "ModelStarting", "engine main starts")],
        engines=[{"name": "main", "message": "ImagePullBackOff: vllm:typo"}],
    )
    return ShownState(
        _fleet(*trees),
        expected=(
            "team-a/chat",
            "ImagePullBackOff: vllm:typo",
            "modelplane rollout undo md/chat -n team-a",
        ),
    )


def temporal_down() -> ShownState:
    return ShownState(
        _fleet(*_healthy()),
        temporal_silent=True,
        expected=("Temporal", "Temporal does not answer", "modelplane up"),
    )


def thousand_clusters(clusters: int = 1_000, replicas: int = 3) -> ShownState:
    """A large fleet: ten regions, one deployment per cluster, one cluster is silent."""
    trees: list[Tree] = []
    for number in range(clusters):
        name = f"c{number:04d}"
        is_silent = number == clusters // 2
        cluster = a_cluster(name, nodes=16, ready=not is_silent)
        trees.append(in_region(cluster, f"region-{number % 10}"))
        own = [
            a_replica(f"{name}-{n}", f"m{number:04d}", name) for n in range(replicas)
        ]
        trees += [a_deployment(f"m{number:04d}", wanted=replicas, ready=replicas), *own]
        if number % 10 == 0:
            trees.append(a_service(f"m{number:04d}"))
    return ShownState(
        _fleet(*trees),
        expected=(f"InferenceCluster c{clusters // 2:04d}",),
    )


STATES: dict[str, Callable[[], ShownState]] = {
    made.__name__.replace("_", "-"): made
    for made in (
        empty,
        healthy,
        full,
        drained,
        silent_cluster,
        bad_rollout,
        temporal_down,
        thousand_clusters,
    )
}


def a_version(number: int) -> int:
    """Return a version that follows the versions of all states."""
    return START + number


def health_of(state: ShownState, now_ms: int) -> dict[str, Any]:
    """Return the health part of `/ui/state.json`."""
    minute_ago = now_ms - 60_000
    return {
        "now": now_ms,
        "temporal": {
            "answered": minute_ago if state.temporal_silent else now_ms,
            "silent": state.temporal_silent,
        },
        "workers": {
            "polled": minute_ago if state.workers_silent else now_ms,
            "silent": state.workers_silent,
            "known": True,
        },
    }
