"""Each auditor accepts a sound moment and refuses one with a single violation, which it names."""

import asyncio
from dataclasses import replace
from itertools import cycle
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from unittest.mock import AsyncMock

import pytest

from tests.simulation import auditors, watching
from tests.simulation.observe import Observer
from tests.simulation.snapshot import (
    SeenCluster,
    SeenCopy,
    SeenDeployment,
    SeenEntry,
    SeenObject,
    SeenPlacement,
    SeenPod,
    SeenPool,
    SeenReplica,
    SeenRoute,
    SeenWorkflow,
    Snapshot,
)
from tests.simulation.watching import Watch
from tests.simulation.world import Step

if TYPE_CHECKING:
    from tests.simulation.world import World

CHAT, REPLICA, SERVICE = ("ml", "chat"), ("ml", "chat-eu-1-0"), ("ml", "talk")
DEPLOYMENT_ID, REPLICA_ID = "modeldeployment/ml/chat", "modelreplica/ml/chat-eu-1-0"
PLACEMENT = SeenPlacement("r1", REPLICA[1], "eu-1")
DEPLOYMENT = SeenDeployment(CHAT, "d1", wanted=1, applied=1, shown_ready=1, placements=(PLACEMENT,))
REPLICA_RUNS = SeenReplica("r1", REPLICA, "chat", "d1", "eu-1")
POD = SeenPod("eu-1", "gpus", "r1", devices=8)
OBJECT = SeenObject("eu-1", "Deployment", ("ml", "chat-main"), "r1")
ROUTE = SeenRoute(SERVICE, frozenset({REPLICA[1]}), frozenset({REPLICA[1]}))
CLUSTER = SeenCluster("eu-1", "c1")
SOUND = Snapshot(
    workflows={
        "fleetscheduler/default": SeenWorkflow(
            "fleetscheduler/default", "FleetScheduler", events=100
        ),
        DEPLOYMENT_ID: SeenWorkflow(DEPLOYMENT_ID, "ModelDeployment", "d1", events=100),
        REPLICA_ID: SeenWorkflow(REPLICA_ID, "ModelReplica", "r1", events=100),
        "inferencecluster/eu-1": SeenWorkflow(
            "inferencecluster/eu-1", "InferenceCluster", "c1", events=100
        ),
    },
    deployments=(DEPLOYMENT,),
    replicas=(REPLICA_RUNS,),
    ledger=(SeenEntry("r1", REPLICA, "eu-1", "Bound", {"gpus": 1}),),
    pods=(POD,),
    pools={("eu-1", "gpus"): SeenPool(1)},
    objects=(OBJECT,),
    routes=(ROUTE,),
    clusters=(CLUSTER,),
    copies=(SeenCopy(("ml", "weights"), "eu-1", "Ready", complete=True),),
    texts={"the history of a": "nothing of note"},
    secrets=frozenset({"hunter2"}),
)
LATER = replace(
    SOUND,
    seconds=7200.0,
    workflows={
        name: replace(found, events=found.events + 200) for name, found in SOUND.workflows.items()
    },
)


def with_workflow(**changed: Any) -> Snapshot:
    """Return the sound moment with another state of the replica's workflow."""
    return replace(
        SOUND,
        workflows={**SOUND.workflows, REPLICA_ID: replace(SOUND.workflows[REPLICA_ID], **changed)},
    )


def with_deployment(**changed: Any) -> Snapshot:
    """Return the sound moment with another state of the deployment."""
    return replace(SOUND, deployments=(replace(DEPLOYMENT, **changed),))


def with_replica(**changed: Any) -> Snapshot:
    """Return the sound moment with another state of the replica."""
    return replace(SOUND, replicas=(replace(REPLICA_RUNS, **changed),))


def with_cluster(**changed: Any) -> Snapshot:
    """Return the sound moment with another state of the cluster."""
    return replace(SOUND, clusters=(replace(CLUSTER, **changed),))


class Refused(NamedTuple):
    """A moment, and the sentence with which an auditor refuses it."""

    auditor: auditors.Auditor
    seen: Snapshot
    sentence: str


TWO_PODS = replace(SOUND, pods=(POD, replace(POD, owner="r2")))
GONE = {
    **SOUND.workflows,
    REPLICA_ID: replace(SOUND.workflows[REPLICA_ID], running=False, status="COMPLETED"),
}
LEFT_ROUTE = SeenObject("control", "HTTPRoute", ("ml", "ms-talk"), "s1")
SERVICE_ENDED = SeenWorkflow(
    "modelservice/ml/talk",
    "ModelService",
    "s1",
    running=False,
    status="COMPLETED",
    left_behind=frozenset({str(LEFT_ROUTE)}),
)
"""A service whose deletion was forced, and its route, which is still there."""
LISTED = replace(GONE[REPLICA_ID], left_behind=frozenset({str(OBJECT)}))
"""A replica that is gone, and had to leave its Deployment."""


def with_replaced(earlier: SeenWorkflow) -> Snapshot:
    """Return a moment at which another replica has the name of one that is gone."""
    present = replace(SOUND.workflows[REPLICA_ID], uid="r2")
    return replace(
        SOUND,
        workflows={**SOUND.workflows, REPLICA_ID: present},
        replaced=(earlier,),
        replicas=(replace(REPLICA_RUNS, uid="r2"),),
        deployments=(
            replace(DEPLOYMENT, shown_ready=0, placements=(replace(PLACEMENT, uid="r2"),)),
        ),
        ledger=(replace(SOUND.ledger[0], uid="r2"),),
    )


REFUSED = [
    Refused(
        auditors.no_pool_is_overcommitted, TWO_PODS, "eu-1/gpus: 2 of 1 nodes are used by r1, r2"
    ),
    Refused(
        auditors.no_pool_is_overcommitted,
        replace(TWO_PODS, pools={("eu-1", "gpus"): SeenPool(1, devices=8, by_device=True)}),
        "eu-1/gpus: 16 of 8 devices are used by r1, r2",
    ),
    Refused(
        auditors.cloud_problems_are_explained,
        with_cluster(unexplained=("pool gpu (CapacityUnavailable)",)),
        "eu-1 does not explain the problem of pool gpu (CapacityUnavailable)",
    ),
    Refused(
        auditors.the_ledger_equals_a_recount,
        replace(SOUND, ledger_differences=("pool gpus: 1 against 2",)),
        "the ledger differs from a recount: pool gpus: 1 against 2",
    ),
    Refused(
        auditors.no_workflow_task_fails,
        with_workflow(failures=("KeyError: 'x'",)),
        f"a workflow task of {REPLICA_ID} failed: KeyError: 'x'",
    ),
    Refused(
        auditors.no_workflow_task_fails,
        with_workflow(status="FAILED", running=False),
        f"{REPLICA_ID} ended as FAILED",
    ),
    Refused(
        auditors.no_workflow_task_fails,
        with_workflow(shown=frozenset({"event/PassesRepeat"})),
        f"the passes of {REPLICA_ID} queue one another without end",
    ),
    Refused(
        auditors.teardowns_keep_their_order,
        with_replica(deleting=True, step=2),
        "ml/chat-eu-1-0 is in step 2 of its teardown, and the route of ml/talk still has it",
    ),
    Refused(
        auditors.teardowns_keep_their_order,
        replace(with_replica(deleting=True, step=3), routes=(), pods=(replace(POD, ending=True),)),
        "the workload of a pod of ml/chat-eu-1-0 is deleted in step 3 of the teardown",
    ),
    Refused(
        auditors.teardowns_keep_their_order,
        with_cluster(tearing_down=True),
        "the stack of eu-1 is removed, and 1 objects of replicas remain",
    ),
    Refused(
        auditors.teardowns_keep_their_order,
        with_cluster(cloud_deleting=True),
        "eu-1 is being deleted at its cloud before its stack is removed",
    ),
    Refused(
        auditors.a_finished_object_left_nothing,
        replace(SOUND, workflows=GONE),
        f"{REPLICA_ID} is gone, and left eu-1/Deployment/ml/chat-main without listing it",
    ),
    Refused(
        auditors.evictions_have_a_cause,
        with_replica(deleting=True),
        "ml/chat-eu-1-0 is being deleted, and its deployment records no cause",
    ),
    Refused(
        auditors.no_secret_is_shown,
        replace(SOUND, texts={"the log": "password hunter2 is wrong"}),
        "the secret value 'hunter2' is in the log",
    ),
    Refused(
        auditors.every_request_is_answered,
        replace(SOUND, waits=("the account of modelreplica/ml/x",)),
        "the scheduler waits: the account of modelreplica/ml/x",
    ),
    Refused(
        auditors.every_request_is_answered,
        with_deployment(answered=False),
        "ml/chat was never answered by the scheduler",
    ),
    Refused(
        auditors.every_request_is_answered,
        with_deployment(wanted=3),
        "ml/chat wants 3 replicas, has 1, and was told that 0 are missing",
    ),
    Refused(
        auditors.every_request_is_answered,
        with_deployment(placements=(PLACEMENT, replace(PLACEMENT, uid="r2"))),
        "ml/chat wants 1 replicas, has 2, and was told that 0 are missing",
    ),
    Refused(
        auditors.every_request_is_answered,
        with_deployment(wanted=2, shortfall=1),
        "ml/chat misses 1 replicas, and no message says why",
    ),
    Refused(
        auditors.everything_that_fits_is_placed,
        with_deployment(wanted=3, shortfall=2, placeable=1),
        "ml/chat misses 2 replicas, of which a new decision places 1",
    ),
    Refused(
        auditors.what_is_deleted_is_gone,
        with_workflow(deleting=True, unsettled="step 3 of 12"),
        f"{REPLICA_ID} is being deleted for ever: step 3 of 12",
    ),
    Refused(
        auditors.objects_are_owned,
        replace(SOUND, workflows=GONE),
        "eu-1/Deployment/ml/chat-main belongs to nobody who lives (r1), and is not listed as "
        "left behind",
    ),
    Refused(
        auditors.objects_are_owned,
        with_replaced(GONE[REPLICA_ID]),
        "eu-1/Deployment/ml/chat-main belongs to nobody who lives (r1), and is not listed as "
        "left behind",
    ),
    Refused(
        auditors.a_finished_object_left_nothing,
        with_replaced(GONE[REPLICA_ID]),
        "modelreplica/ml/chat-eu-1-0 is gone, and left eu-1/Deployment/ml/chat-main without "
        "listing it",
    ),
    Refused(
        auditors.every_pod_is_charged,
        with_replaced(GONE[REPLICA_ID]),
        "a pod in eu-1/gpus is of replica r1, which has no ledger entry",
    ),
    Refused(
        auditors.every_pod_is_charged,
        replace(SOUND, ledger=(), replicas=()),
        "a pod in eu-1/gpus is of replica r1, which has no ledger entry",
    ),
    Refused(
        auditors.every_pod_is_charged,
        replace(SOUND, replicas=()),
        "ml/chat-eu-1-0 (r1) is charged as Bound, and does not run",
    ),
    Refused(
        auditors.every_pod_is_charged,
        replace(SOUND, ledger=(replace(SOUND.ledger[0], state="Releasing"),)),
        "ml/chat-eu-1-0 (r1) runs, and is charged as Releasing",
    ),
    Refused(
        auditors.every_pod_is_charged,
        replace(SOUND, ledger=(), pods=()),
        "ml/chat-eu-1-0 (r1) runs, and is not charged",
    ),
    Refused(
        auditors.deployments_track_what_runs,
        with_deployment(placements=()),
        "ml/chat-eu-1-0 (r1) runs, and no deployment tracks it",
    ),
    Refused(
        auditors.deployments_track_what_runs,
        replace(SOUND, replicas=()),
        "ml/chat tracks chat-eu-1-0 (r1), which does not run",
    ),
    Refused(
        auditors.deployments_track_what_runs,
        with_deployment(placements=(replace(PLACEMENT, waits_for=("r0",)),)),
        "chat-eu-1-0 waits for r0, which is gone",
    ),
    Refused(
        auditors.ready_counts_equal_the_pods,
        replace(SOUND, pods=(replace(POD, ready=False),)),
        "ml/chat shows 1 ready replicas, and the pods of 0 are ready",
    ),
    Refused(
        auditors.clusters_show_how_they_are,
        with_cluster(reachable=False),
        "eu-1 is Ready, and its API server is silent",
    ),
    Refused(
        auditors.clusters_show_how_they_are,
        with_cluster(ready=False),
        "eu-1 is not Ready, and its API server answers",
    ),
    Refused(
        auditors.caches_show_what_is_staged,
        replace(SOUND, copies=(replace(SOUND.copies[0], phase="Hydrating"),)),
        "ml/weights is Hydrating on eu-1, where its volume is complete",
    ),
    Refused(
        auditors.every_route_serves,
        with_replica(deleting=True),
        "the route of ml/talk has chat-eu-1-0, which is being deleted",
    ),
    Refused(
        auditors.every_route_serves,
        with_replica(serving=False),
        "the route of ml/talk has chat-eu-1-0, which is not serving",
    ),
    Refused(
        auditors.every_route_serves,
        replace(SOUND, routes=(replace(ROUTE, endpoints=frozenset()),)),
        "the route of ml/talk has nothing, and the service selects chat-eu-1-0",
    ),
    Refused(
        auditors.the_last_writer_of_a_scale_wins,
        with_deployment(wanted=4, scaled=2),
        "ml/chat wants 4 replicas; the last scale asked for 2, the last apply for 1",
    ),
]


@pytest.mark.parametrize(
    "auditor", [*auditors.ALWAYS, *auditors.AT_REST], ids=lambda auditor: auditor.__name__
)
def test_every_auditor_accepts_a_sound_moment_and_refuses_another_one(
    auditor: auditors.Auditor,
) -> None:
    assert list(auditor(SOUND)) == []
    assert any(refused.auditor is auditor for refused in REFUSED)


@pytest.mark.parametrize("refused", REFUSED, ids=lambda refused: refused.sentence)
def test_an_auditor_names_the_rejected_state(refused: Refused) -> None:
    assert list(refused.auditor(refused.seen)) == [refused.sentence]


EXCUSED = {
    "a pool that lost nodes": replace(
        TWO_PODS, pools={("eu-1", "gpus"): SeenPool(1, excused=True)}
    ),
    "two pods with half of the devices of a node each": replace(
        SOUND,
        pods=(replace(POD, devices=4), replace(POD, devices=4)),
        pools={("eu-1", "gpus"): SeenPool(1, devices=8, by_device=True)},
    ),
    "a pod that waits for the node of its predecessor": replace(
        SOUND, pods=(replace(POD, deleting=True), replace(POD, node="", ready=False))
    ),
    "a pod that a rollout deletes while its replica leaves its routes": replace(
        with_replica(deleting=True, step=1),
        pods=(replace(POD, deleting=True),),
        deployments=(replace(DEPLOYMENT, deleting=True),),
    ),
    "a replica whose withdrawal was skipped": replace(
        with_replica(deleting=True, step=3, skipped=True),
        deployments=(replace(DEPLOYMENT, deleting=True),),
    ),
    "a replica in a route that its service left behind": replace(
        with_replica(deleting=True, step=3),
        objects=(OBJECT, LEFT_ROUTE),
        replaced=(SERVICE_ENDED,),
        deployments=(replace(DEPLOYMENT, deleting=True),),
    ),
    "a replica in the route of a service that was terminated": replace(
        with_replica(deleting=True, step=3),
        routes=(replace(ROUTE, orphaned=True, expected=None),),
        deployments=(replace(DEPLOYMENT, deleting=True),),
    ),
    "a replica that its deployment has forgotten to delete since a reset": replace(
        with_replica(deleting=True),
        deployments=(replace(DEPLOYMENT, was_reset=True),),
    ),
    "a pod whose workload an apply replaced just before the teardown": replace(
        with_replica(deleting=True, step=1, replaces=True),
        routes=(),
        pods=(replace(POD, ending=True),),
        deployments=(replace(DEPLOYMENT, deleting=True),),
    ),
    "a replica that begins its teardown again since a reset": replace(
        with_replica(deleting=True, step=3, was_reset=True),
        routes=(),
        pods=(replace(POD, ending=True),),
        deployments=(replace(DEPLOYMENT, deleting=True),),
    ),
    "a stack whose removal was forced": with_cluster(tearing_down=True, forced=True),
    "an object that is listed as left behind": replace(
        SOUND, workflows={**GONE, REPLICA_ID: LISTED}
    ),
    "a replica that is deleted for a reason": replace(
        with_replica(deleting=True),
        deployments=(replace(DEPLOYMENT, placements=(replace(PLACEMENT, reason="Drained"),)),),
    ),
    "a replica that an earlier deployment of the name deleted": with_replica(
        deleting=True, deployment_uid="d0"
    ),
    "a terminated workflow": with_workflow(running=False, status="TERMINATED"),
}


@pytest.mark.parametrize("name", EXCUSED)
def test_an_allowed_state_is_not_a_finding(name: str) -> None:
    assert auditors.audit(EXCUSED[name], auditors.ALWAYS) == []


def test_a_cloud_workflow_owns_its_objects_beyond_the_life_of_its_cluster() -> None:
    network = SeenObject("gke", "networks", ("", "gke-1"), "c2")
    cloud = SeenWorkflow("cloud/gke-1/c2", "CloudCluster")
    alone, served = (
        replace(SOUND, objects=(network,), workflows={**SOUND.workflows, **more})
        for more in ({}, {cloud.workflow_id: cloud})
    )
    assert len(list(auditors.objects_are_owned(alone))) == 1
    assert list(auditors.objects_are_owned(served)) == []


@pytest.mark.parametrize(("deleting", "findings"), [(True, 0), (False, 1)])
def test_an_object_that_was_reset_in_its_deletion_keeps_its_objects_to_the_end(
    *, deleting: bool, findings: int
) -> None:
    shared = SeenObject("control", "Gateway", ("", "modelplane"), "g0")
    gateway = SeenWorkflow(
        "inferencegateway/default",
        "InferenceGateway",
        uid="g1",
        deleting=deleting,
        uids_before_resets=frozenset({"g0"}),
    )
    seen = replace(
        SOUND, objects=(shared,), workflows={**SOUND.workflows, gateway.workflow_id: gateway}
    )
    assert len(list(auditors.objects_are_owned(seen))) == findings


@pytest.mark.parametrize(("listed", "findings"), [(True, 0), (False, 1)])
def test_a_cluster_may_wait_until_a_listed_release_is_removed(
    *, listed: bool, findings: int
) -> None:
    release = "eu-1/HelmRelease/kueue-system/mp-kueue"
    earlier = SeenWorkflow(
        "inferencecluster/eu-1",
        "InferenceCluster",
        uid="c0",
        running=False,
        status="COMPLETED",
        left_behind=frozenset({release} if listed else ()),
    )
    seen = replace(with_cluster(ready=False, finds_release=True), replaced=(earlier,))
    assert len(list(auditors.clusters_show_how_they_are(seen))) == findings


def test_a_list_of_left_objects_counts_also_after_another_object_has_taken_the_name() -> None:
    every = (*auditors.ALWAYS, *auditors.AT_REST)
    assert auditors.audit(with_replaced(LISTED), every) == []


@pytest.mark.parametrize(("listed", "findings"), [(True, 0), (False, 1)])
def test_the_deletion_of_a_cluster_may_wait_for_listed_routes(
    *, listed: bool, findings: int
) -> None:
    route = SeenObject("eu-1", "HTTPRoute", ("ml", "chat"), "r0")
    cluster = SeenWorkflow(
        "inferencecluster/eu-1",
        "InferenceCluster",
        uid="c1",
        deleting=True,
        unsettled="Uninstalling: stack U1: no route and no InferencePool is left; waits for chat",
    )
    earlier = SeenWorkflow(
        REPLICA_ID,
        uid="r0",
        running=False,
        status="COMPLETED",
        left_behind=frozenset({"eu-1/HTTPRoute/ml/chat"} if listed else ()),
    )
    seen = replace(
        SOUND,
        objects=(route,),
        workflows={**SOUND.workflows, cluster.workflow_id: cluster},
        replaced=(earlier,),
    )
    assert len(list(auditors.what_is_deleted_is_gone(seen))) == findings


def test_a_list_counts_also_after_its_object_was_terminated() -> None:
    terminated = with_replaced(replace(LISTED, status="TERMINATED"))
    assert list(auditors.objects_are_owned(terminated)) == []


def test_a_persisting_fault_excuses_the_object_that_has_it_and_no_other_one() -> None:
    waiting = replace(
        SOUND,
        workflows={
            **SOUND.workflows,
            REPLICA_ID: replace(SOUND.workflows[REPLICA_ID], deleting=True, unsettled="no answer"),
            DEPLOYMENT_ID: replace(
                SOUND.workflows[DEPLOYMENT_ID], deleting=True, unsettled="waits"
            ),
        },
        broken=frozenset({REPLICA_ID}),
    )
    assert list(auditors.what_is_deleted_is_gone(waiting)) == [
        f"{DEPLOYMENT_ID} is being deleted for ever: waits"
    ]


def test_a_deleted_cluster_that_is_silent_excuses_its_caches() -> None:
    seen = replace(
        with_cluster(ready=False, reachable=False, deleting=True),
        copies=(replace(SOUND.copies[0], phase="Hydrating"),),
    )
    assert list(auditors.clusters_show_how_they_are(seen)) == []
    assert list(auditors.caches_show_what_is_staged(seen)) == []


def test_two_equal_moments_at_rest_differ_in_nothing() -> None:
    assert auditors.compare(SOUND, LATER) == []


GREW = (
    f"histories_do_not_grow: the history of {DEPLOYMENT_ID} grew by 301 events in 2.0 h at rest; "
    "150 an hour are the bound"
)
BUSY = {**LATER.workflows, DEPLOYMENT_ID: replace(LATER.workflows[DEPLOYMENT_ID], events=401)}
CHANGED = [
    (
        replace(LATER, deployments=(replace(DEPLOYMENT, wanted=2),)),
        ["nothing_flaps: ml/chat went from 1 to 2 replicas, and nobody asked for it"],
    ),
    (
        replace(LATER, replicas=(replace(REPLICA_RUNS, uid="r2"),)),
        [
            "nothing_flaps: ml/chat-eu-1-0 (r1) is gone, and nobody asked for it",
            "nothing_flaps: ml/chat-eu-1-0 (r2) is new, and nobody asked for it",
        ],
    ),
    (
        replace(LATER, routes=(replace(ROUTE, endpoints=frozenset({"other"})),)),
        ["nothing_flaps: the route of ml/talk changed from chat-eu-1-0 to other"],
    ),
    (
        replace(
            LATER,
            workflows={
                **LATER.workflows,
                DEPLOYMENT_ID: replace(LATER.workflows[DEPLOYMENT_ID], generation=1),
            },
        ),
        [f"nothing_flaps: {DEPLOYMENT_ID} went from generation 0 to 1, and nobody wrote it"],
    ),
    (
        replace(LATER, workflows=BUSY),
        [GREW],
    ),
]


@pytest.mark.parametrize(
    ("later", "sentences"), CHANGED, ids=lambda value: value[0] if isinstance(value, list) else ""
)
def test_changes_at_rest_are_named(later: Snapshot, sentences: list[str]) -> None:
    assert auditors.compare(SOUND, later) == sentences


def test_a_status_that_the_earlier_moment_could_not_read_is_not_compared() -> None:
    later = replace(
        LATER,
        workflows={
            **LATER.workflows,
            DEPLOYMENT_ID: replace(LATER.workflows[DEPLOYMENT_ID], generation=1),
        },
    )
    outdated = {DEPLOYMENT_ID: replace(SOUND.workflows[DEPLOYMENT_ID], outdated=True)}
    earlier = replace(SOUND, workflows={**SOUND.workflows, **outdated})
    assert auditors.compare(earlier, later) == []


def test_a_status_is_outdated_from_a_task_without_a_cached_workflow_on() -> None:
    run = SimpleNamespace(
        run_id="r",
        kind="ModelDeployment",
        workflow=None,
        ended=None,
        is_open=True,
        status="RUNNING",
    )
    history = SimpleNamespace(run=run, runs=[SimpleNamespace(events=5, failures=[], reset_from=())])
    server = SimpleNamespace(executions={DEPLOYMENT_ID: history})
    observer = Observer(cast("World", SimpleNamespace(server=server)))

    def outdated(events: int) -> bool:
        history.runs[0].events = events
        return dict(observer._workflows())[DEPLOYMENT_ID].outdated

    observer.ended["r"] = SeenWorkflow(DEPLOYMENT_ID, "ModelDeployment", events=5)
    assert [outdated(5), outdated(6), outdated(6)] == [False, True, True]


class Moments(Watch):
    """Looks that find these moments, one after the other."""

    def __init__(self, *moments: Snapshot) -> None:
        self.moments = list(moments)

    async def until_settled(self) -> Snapshot:
        return self.moments.pop(0)


def at_rest(monkeypatch: pytest.MonkeyPatch, *moments: Snapshot) -> list[str]:
    """Return the findings in a world that is seen at these moments."""
    monkeypatch.setattr(asyncio, "sleep", AsyncMock())
    world: Any = SimpleNamespace(observers=[Moments(*moments)], horizon=0.0)
    try:
        asyncio.run(watching.at_rest(world))
    except auditors.Finding as finding:
        return finding.sentences
    return []


def test_a_history_may_grow_once_at_rest_and_may_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    grown = replace(LATER, workflows=BUSY)
    still = replace(grown, seconds=LATER.seconds + 3600)
    goes_on = replace(
        still, workflows={**BUSY, DEPLOYMENT_ID: replace(BUSY[DEPLOYMENT_ID], events=702)}
    )
    assert at_rest(monkeypatch, SOUND, grown, still) == []
    (sentence,) = at_rest(monkeypatch, SOUND, grown, goes_on)
    assert f"the history of {DEPLOYMENT_ID} grew by 301 events in 1.0 h at rest" in sentence


def test_a_workflow_that_only_sets_timers_again_and_again_is_found() -> None:

    def wakes(every: float, *details: str) -> None:
        watch = Watch(cast("World", SimpleNamespace(parts=None)))
        for number, detail in zip(range(watching.IDLE_TASKS), cycle(details), strict=False):
            watch._check_idling(Step(number, every * number, "task", DEPLOYMENT_ID, detail))

    idle, busy = "fire_timer -> start_timer", "fire_timer -> schedule_activity, start_timer"
    wakes(1.0, idle)
    wakes(0.1, *[idle] * 9, busy)
    with pytest.raises(auditors.Finding, match=f"{DEPLOYMENT_ID} wakes up again and again"):
        wakes(0.1, idle, idle, "fire_timer -> cancel_timer, continue_as_new_workflow_execution")


def test_an_unrequested_change_is_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    later, sentences = CHANGED[0]
    assert at_rest(monkeypatch, SOUND, later) == sentences


def test_a_replacement_that_is_not_ready_is_beside_the_replica_that_it_replaces() -> None:
    replacement = replace(PLACEMENT, uid="r2", ready=False)
    seen = with_deployment(placements=(PLACEMENT, replacement))
    assert list(auditors.every_request_is_answered(seen)) == []


@pytest.mark.parametrize(
    ("unsettled", "left_behind", "findings"),
    [
        ("BackendReady: release a/b was not installed for this InferenceCluster", (), 0),
        ("", ("eu-1/stack//eu-1",), 0),
        ("", (), 1),
    ],
)
def test_the_stack_of_a_terminated_cluster_may_stay_if_the_next_one_shows_it(
    unsettled: str, left_behind: tuple[str, ...], findings: int
) -> None:
    release = SeenObject("eu-1", "HelmRelease", ("cert-manager", "mp-cert-manager"), "")
    cluster = SeenWorkflow(
        "inferencecluster/eu-1",
        "InferenceCluster",
        uid="c1",
        unsettled=unsettled,
        left_behind=frozenset(left_behind),
    )
    seen = replace(
        SOUND, objects=(release,), workflows={**SOUND.workflows, cluster.workflow_id: cluster}
    )
    assert len(list(auditors.objects_are_owned(seen))) == findings


def test_a_cluster_lists_the_objects_of_a_whole_cache() -> None:
    job = SeenObject("eu-1", "Job", ("ml", "job"), "h0", "modelplane.ai/modelcache=llama")
    cluster = SeenWorkflow(
        "inferencecluster/eu-1",
        "InferenceCluster",
        running=False,
        status="COMPLETED",
        left_behind=frozenset({"eu-1/ModelCache//ml/llama"}),
    )
    for replaced, findings in (((), 1), ((cluster,), 0)):
        seen = replace(SOUND, objects=(job,), replaced=replaced)
        assert len(list(auditors.objects_are_owned(seen))) == findings


@pytest.mark.parametrize(("listed", "findings"), [(True, 0), (False, 1)])
def test_the_deletion_of_a_cluster_may_wait_for_the_devices_of_listed_pods(
    *, listed: bool, findings: int
) -> None:
    cluster = SeenWorkflow(
        "inferencecluster/eu-1",
        "InferenceCluster",
        uid="c1",
        deleting=True,
        unsettled="Uninstalling: uninstall dra-driver; waits for ResourceClaim ml/chat-devices",
    )
    earlier = SeenWorkflow(
        REPLICA_ID,
        uid="r0",
        running=False,
        status="COMPLETED",
        left_behind=frozenset({"eu-1/owner/r0"} if listed else ()),
    )
    seen = replace(
        SOUND,
        workflows={**SOUND.workflows, cluster.workflow_id: cluster},
        replaced=(earlier,),
    )
    assert len(list(auditors.what_is_deleted_is_gone(seen))) == findings
