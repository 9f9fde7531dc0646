"""Each cluster activity runs on the queue of its class, with the configured slots."""

from collections import Counter
from datetime import timedelta
from pathlib import Path

from activities.caches.activities import CacheActivities
from activities.caches.revisions import RevisionActivities
from activities.clusters.activities import ClusterActivities
from activities.clusters.permissions import Usage
from activities.render.version import renderer_hash
from activities.render_settings import render_settings
from activities.routing.activities import RoutingActivities
from activities.stack.activities import StackActivities
from activities.workloads.activities import WorkloadActivities
from api_types.queues import ClusterWork
from api_types.sections.caches import CacheSettings
from api_types.sections.clusters import (
    ClusterSettings,
    ControlClusterSettings,
    SecretSettings,
    TeardownSettings,
)
from api_types.sections.programs import WorkerSettings
from api_types.sections.stacks import GatewaySettings
from api_types.sections.workloads import PickerSettings, WorkloadSettings
from api_types.settings import Settings
from worker import build_activities, work_on_clusters

OWNERS = (
    StackActivities,
    RoutingActivities,
    ClusterActivities,
    WorkloadActivities,
    CacheActivities,
    RevisionActivities,
)
LIMITS = WorkerSettings(
    max_concurrent_activities=11, max_concurrent_watches=22, max_concurrent_waits=33
)


def settings(folder: Path) -> Settings:
    return Settings(
        worker=LIMITS,
        cluster=ClusterSettings(max_concurrent_requests=7, max_concurrent_applies=5),
        secrets=SecretSettings(directory=folder),
    )


def test_every_activity_on_clusters_has_one_class(tmp_path: Path) -> None:
    classes = work_on_clusters(build_activities(settings(tmp_path)), LIMITS)
    served = Counter(
        each.__name__ for of_class in classes.values() for each in of_class.activities
    )
    defined = {
        name
        for owner in OWNERS
        for name, member in vars(owner).items()
        if hasattr(member, "__temporal_activity_definition")
    }
    # The cluster waits for a worker on the queue of the task that no worker took.
    assert served == Counter({**dict.fromkeys(defined, 1), "await_worker": 2})


def test_waiting_activities_have_their_own_slots(tmp_path: Path) -> None:
    classes = work_on_clusters(build_activities(settings(tmp_path)), LIMITS)
    slots = {work: of_class.slots for work, of_class in classes.items()}
    waiting = {
        ClusterWork.CALL: 22,
        ClusterWork.WATCH: 22,
        ClusterWork.TEARDOWN: 33,
        ClusterWork.WAIT: 33,
    }
    assert slots == {
        **waiting,
        ClusterWork.APPLY: 11,
        ClusterWork.CACHE: 11,
        ClusterWork.STACK: 11,
    }


def test_the_limits_of_requests_and_applies_reach_the_clients_of_clusters(
    tmp_path: Path,
) -> None:
    pool = build_activities(settings(tmp_path)).pool
    assert (pool.requests_at_once, pool.applies_at_once) == (7, 5)


def test_workflows_get_their_settings_with_the_facts_of_a_cluster(
    tmp_path: Path,
) -> None:
    given = settings(tmp_path).model_copy(
        update={
            "cluster": ClusterSettings(unreachable_after=77),
            "teardown": TeardownSettings(drain_seconds=7),
            "cache": CacheSettings(max_attempts=5, evict_grace=9),
            "gateway": GatewaySettings(scheme="https"),
            "control_cluster": ControlClusterSettings(name="control"),
        }
    )
    assert build_activities(given).clusters._settings == {
        "withdraw_after_seconds": 77,
        "drain_seconds": 7,
        "cache_attempts_max": 5,
        "cache_evict_grace_seconds": 9,
        "gateway_scheme": "https",
        "control_cluster": "modelplane-system/control/kubeconfig",
        "renderer": renderer_hash(
            render_settings(given), given.workloads.adopt_renderer
        ),
    }


def test_settings_reach_the_checks_of_rights_and_nodes(
    tmp_path: Path,
) -> None:
    given = settings(tmp_path).model_copy(
        update={
            "epp": PickerSettings(metrics_auth=True),
            "teardown": TeardownSettings(force_after=60),
            "workloads": WorkloadSettings(toleration_keys=("example.com/gpu",)),
        }
    )
    clusters = build_activities(given).clusters
    assert clusters._usage == Usage(metrics_auth=True, force_delete=True)
    assert clusters._toleration_keys == ("example.com/gpu",)
    assert build_activities(settings(tmp_path)).clusters._usage == Usage()


def test_pods_are_force_deleted_only_if_configured(tmp_path: Path) -> None:
    for force_after, limit in ((None, None), (600, timedelta(seconds=600))):
        made = build_activities(
            settings(tmp_path).model_copy(
                update={"teardown": TeardownSettings(force_after=force_after)}
            )
        )
        assert (made.workloads.force_after, made.caches.force_after) == (limit, limit)
