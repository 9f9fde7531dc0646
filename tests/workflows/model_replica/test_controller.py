"""The orders of a replica for each message and result, without Temporal, above all at its end."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from activities.render.objects.teardown import ENGINES, SWEEP
from api_types.messages.caches import CacheChanged, CacheReport
from api_types.messages.cluster_work import CacheMount, ClusterFacts, NodeLocal
from api_types.messages.observations import (
    Observed,
    ObservedPool,
    ObservedReplica,
    ObservedWorkload,
)
from api_types.messages.versions import MessageVersion, ObservationOrder
from api_types.names import inference_pool_name, picker_name
from tests.workflows.model_replica.builders import (
    APPLIED,
    CLUSTER,
    DEPLOYMENT,
    WORKLOAD,
    a_replica,
    observed,
)
from tests.workflows.model_replica.controlled import (
    BEGINNING,
    DONE,
    NO_ANSWER,
    QWEN,
    SCHEDULER,
    URL,
    Replica,
    a_start,
    remaining,
)
from workflows.entity.failures import Failure
from workflows.model_replica.cache import ReplicaCache
from workflows.model_replica.decisions.requests import apply_request
from workflows.model_replica.orders import (
    Apply,
    DeleteObjects,
    Order,
    ReadClusterMemo,
    SendReplicaSignal,
)
from workflows.model_replica.reducers import messages
from workflows.model_replica.state import ReplicaAdapterCache, ReplicaReport


def test_a_deleted_replica_frees_its_nodes_before_its_deployment_forgets_it() -> None:
    replica = Replica(a_replica(served=False)).delete()
    replica.step()
    assert replica.deletions() == [ENGINES, SWEEP]
    assert replica.signals() == [
        (QWEN, "Terminating"),
        (SCHEDULER, "released"),
        (QWEN, "Gone"),
    ]
    assert replica.controller.teardown.gone
    assert replica.step() == []


def test_an_unapplied_replica_has_nothing_to_delete() -> None:
    replica = Replica(a_start(), memo=CLUSTER.wire()).delete()
    replica.step()
    assert (replica.deletions(), replica.signals()[-2:]) == (
        [],
        [(SCHEDULER, "released"), (QWEN, "Gone")],
    )


def test_a_rerun_replica_is_searched_for_in_every_step_even_if_it_applies_nothing() -> (
    None
):
    replica = Replica(
        a_start(restarted=True, first_sequence=1000), memo=CLUSTER.wire()
    ).delete()
    replica.now += timedelta(minutes=1)
    replica.step()
    replica.now += timedelta(minutes=1)
    replica.step()
    assert replica.deletions() == list(range(3, SWEEP + 1))
    assert all(
        order.request.workload_namespace == ""
        for order in replica.orders
        if isinstance(order, DeleteObjects)
    )
    assert replica.state.sequence > 1000
    assert replica.controller.teardown.gone


def test_a_rerun_replica_adopts_existing_objects_and_prunes_the_rest() -> None:
    replica = Replica(a_start(restarted=True), memo=CLUSTER.wire())
    (order,) = [order for order in replica.step() if isinstance(order, Apply)]
    assert (
        order.request.search,
        replica.state.prune,
        replica.state.inventory_complete,
    ) == (True, True, True)


def test_a_first_apply_searches_nothing() -> None:
    replica = Replica(a_start(), memo=CLUSTER.wire())
    (order,) = [order for order in replica.step() if isinstance(order, Apply)]
    assert (order.request.search, replica.state.prune) == (False, False)


def test_nodes_are_not_freed_while_the_sweep_finds_objects() -> None:
    replica = Replica(
        a_replica(served=False), [DONE, remaining("v1/Pod/ml/p")]
    ).delete()
    replica.step()
    assert not replica.controller.teardown.gone
    assert replica.signals() == [(QWEN, "Terminating")] * 2
    assert "Pod ml/p" in replica.deleting()[1]
    replica.step()
    assert replica.signals()[-2:] == [(SCHEDULER, "released"), (QWEN, "Gone")]


@pytest.mark.parametrize(
    "problem",
    [
        "the cluster does not answer",
        "the cluster is not known",
        "the cluster is not connected",
    ],
)
def test_nodes_are_not_freed_while_the_cluster_is_unreachable(problem: str) -> None:
    unknown = {
        "the cluster is not known": None,
        "the cluster is not connected": CLUSTER.model_copy(update={"facts": None}),
    }
    replica = Replica(
        a_replica(served=False, cluster=unknown.get(problem, CLUSTER)), [NO_ANSWER] * 50
    ).delete()
    for _ in range(20):
        replica.step()
        replica.now += timedelta(minutes=20)
    assert not replica.controller.teardown.gone
    assert (SCHEDULER, "released") not in replica.signals()
    replica.state.forced = "all"
    replica.step()
    assert replica.signals()[-2:] == [(SCHEDULER, "released"), (QWEN, "Gone")]
    assert DEPLOYMENT.name in {item.name for item in replica.state.left_behind}


def test_a_missing_cluster_is_not_queried_in_a_loop() -> None:
    replica = Replica(a_replica(served=False, cluster=None)).delete()
    for _ in range(24 * 60):
        replica.step()
        replica.now += timedelta(minutes=1)
    assert (
        len([order for order in replica.orders if isinstance(order, ReadClusterMemo)])
        < 110
    )
    reason, message = replica.deleting()
    assert reason == "WaitingForCluster"
    assert message.startswith(
        "step 7 of 12: delete the engines; InferenceCluster eu does not exist or has "
        "not started; apply it again"
    )


def test_the_condition_names_the_connection_error_while_an_attempt_waits_for_a_worker() -> (
    None
):
    replica = Replica(a_replica(served=False)).delete()
    while not isinstance((order := replica.controller.tear_down()[0]), DeleteObjects):
        replica.carry_out(order)
    problem = "WaitingForWorker: no worker serves task queue gpu-eu"
    replica.controller.cluster_changed(
        CLUSTER.model_copy(
            update={"sequence": 2, "connected": False, "problem": problem}
        )
    )
    assert replica.deleting() == (
        "TearingDown",
        f"step 7 of 12: delete the engines; InferenceCluster eu is not connected: {problem}",
    )
    assert not replica.controller.teardown.is_obsolete(order)


@pytest.mark.parametrize("scope", ["step", "all"])
def test_a_force_ends_the_running_attempt(scope: str) -> None:
    replica = Replica(a_replica(served=False)).delete()
    while not isinstance((order := replica.controller.tear_down()[0]), DeleteObjects):
        replica.carry_out(order)
    replica.state.forced = scope
    assert replica.controller.teardown.is_obsolete(order)


def test_a_forced_step_has_one_short_attempt_and_the_next_step_waits_normally() -> None:
    replica = Replica(
        a_replica(served=False, forced="step"), [NO_ANSWER, NO_ANSWER]
    ).delete()
    replica.step()
    attempts = [order for order in replica.orders if isinstance(order, DeleteObjects)]
    assert [(order.request.number, order.limit is not None) for order in attempts] == [
        (ENGINES, True),
        (SWEEP, False),
    ]
    assert (replica.state.forced, replica.controller.teardown.gone) == ("", False)
    assert [item.name for item in replica.state.left_behind] == [DEPLOYMENT.name]


def test_a_successful_forced_step_skips_no_other_step() -> None:
    replica = Replica(
        a_replica(served=False, forced="step"), [DONE, NO_ANSWER]
    ).delete()
    replica.step()
    assert (
        replica.state.forced,
        replica.controller.teardown.gone,
        replica.state.left_behind,
    ) == ("", False, [])


def test_a_fully_forced_teardown_ends_with_the_first_failure() -> None:
    replica = Replica(
        a_replica(served=False, inventory_complete=False, forced="all"), [NO_ANSWER]
    ).delete()
    replica.step()
    assert replica.deletions() == [3]
    assert replica.controller.teardown.gone
    assert {item.kind for item in replica.state.left_behind} == {"Deployment", "label"}


def test_the_pause_after_a_permanent_error_is_long() -> None:
    replica = Replica(
        a_replica(served=False), [Failure("InvalidInput", "no such kind")] * 2
    ).delete()
    pauses = []
    for _ in range(2):
        replica.step()
        due = datetime.fromisoformat(replica.state.retry_at)
        pauses.append(due - replica.now)
        replica.now = due
    assert pauses == [timedelta(minutes=1), timedelta(minutes=2)]


def test_a_running_drain_is_not_restarted_by_the_next_run() -> None:
    replica = Replica(a_replica()).delete()
    replica.step()
    continued = Replica(
        replica.state.model_copy(deep=True), now=BEGINNING + timedelta(seconds=10)
    )
    continued.step()
    assert continued.context.requeue_time == BEGINNING + timedelta(
        seconds=CLUSTER.facts.drain_seconds if CLUSTER.facts else 0
    )
    assert continued.deletions() == []


def test_an_old_observation_changes_nothing() -> None:
    def an_observation(run: int, ready: int) -> Observed:
        order = ObservationOrder(cluster_uid="c", run=run, sequence=1)
        return Observed(
            owner_uid="u", order=order, digest="", replica=observed(ready=ready)
        )

    state = a_replica()
    assert messages.observed(state, an_observation(2, ready=1))
    assert not messages.observed(state, an_observation(1, ready=0))
    assert state.observed == observed(ready=1)


def test_observations_of_its_cluster_count_after_a_late_one_of_its_predecessor() -> (
    None
):
    """The watch of the earlier cluster runs on for seconds, and sees the new objects too."""

    def an_observation(cluster_uid: str, sequence: int, ready: int) -> Observed:
        order = ObservationOrder(cluster_uid=cluster_uid, run=1, sequence=sequence)
        return Observed(
            owner_uid="u", order=order, digest="", replica=observed(ready=ready)
        )

    state = a_replica(cluster_version=MessageVersion(uid="now", sequence=1))
    for late in (
        an_observation("now", 1, ready=0),
        an_observation("before", 9, ready=0),
        an_observation("now", 2, ready=1),
        an_observation("before", 10, ready=0),
    ):
        messages.observed(state, late)
    assert state.observed == observed(ready=1)


def test_of_two_clusters_with_one_api_server_only_its_own_is_followed() -> None:
    def an_observation(cluster: str, sequence: int, ready: int) -> Observed:
        order = ObservationOrder(
            cluster=cluster, cluster_uid=f"uid of {cluster}", run=1, sequence=sequence
        )
        return Observed(
            owner_uid="u", order=order, digest="", replica=observed(ready=ready)
        )

    state = a_replica()
    own = state.start.cluster
    assert messages.observed(state, an_observation(own, 1, ready=0))
    assert not messages.observed(state, an_observation("another", 1, ready=0))
    assert messages.observed(state, an_observation(own, 2, ready=1))
    assert state.observed == observed(ready=1)


class SlowCluster(Replica):
    """A cluster that takes four seconds for each answer."""

    def carry_out(self, order: Order) -> None:
        if isinstance(order, DeleteObjects):
            self.now += timedelta(seconds=4)
        super().carry_out(order)


def test_a_forced_teardown_runs_every_step_on_a_slow_but_reachable_cluster() -> None:
    replica = SlowCluster(
        a_replica(served=False, forced="all", inventory_complete=False)
    ).delete()
    replica.step()
    assert (replica.controller.teardown.gone, replica.state.left_behind) == (True, [])


def test_a_passed_progress_deadline_is_one_warning_and_the_replica_can_still_become_ready() -> (
    None
):
    late = observed(ready=0)
    late = late.model_copy(
        update={"workloads": [late.workloads[0].model_copy(update={"overdue": True})]}
    )
    replica = Replica(
        a_replica(was_ready=False, serving=False, served=False, observed=late)
    )
    for _ in range(3):
        replica.step()
    warning = (
        "engine main has exceeded its progress deadline; still waiting for it",
        1,
    )
    assert (
        replica.events("ProgressDeadlineExceeded"),
        replica.condition("Ready")[:2],
    ) == ([warning], ("False", "Creating"))
    replica.state.observed = observed()
    replica.step()
    assert (replica.events("ProgressDeadlineExceeded"), replica.condition("Ready")) == (
        [warning],
        ("True", "Available", ""),
    )


def test_a_gateway_without_an_address_only_withdraws_the_endpoint() -> None:
    replica = Replica(a_replica())
    replica.step()
    for sequence, address in ((2, ""), (3, "10.0.0.1")):
        replica.controller.cluster_changed(
            CLUSTER.model_copy(
                update={
                    "sequence": sequence,
                    "facts": ClusterFacts(gateway_address=address),
                }
            )
        )
        replica.step()
    assert replica.endpoints() == [URL, "", URL]
    assert all(isinstance(order, SendReplicaSignal) for order in replica.orders)


def test_the_endpoint_is_withdrawn_until_gateways_know_a_returned_picker() -> None:
    def view(ready: int, available: int) -> ObservedReplica:
        picker = ObservedWorkload(
            name=picker_name(WORKLOAD),
            kind="Deployment",
            current=True,
            desired=1,
            ready=ready,
            available=available,
        )
        seen = observed(
            pools=[ObservedPool(name=inference_pool_name(WORKLOAD), accepted=True)]
        )
        return seen.model_copy(update={"workloads": [*seen.workloads, picker]})

    pooled = {"routing_surface": "pool", "picker_guards": True}
    replica = Replica(
        a_replica(applied=APPLIED.model_copy(update=pooled), observed=view(1, 1))
    )
    replica.step()
    endpoints = []
    for ready, available in ((2, 1), (0, 0), (1, 0), (1, 1)):
        replica.state.observed = view(ready, available)
        replica.step()
        endpoints.append((replica.endpoints()[-1], replica.condition("Serving")[0]))
    assert endpoints == [(URL, "True"), ("", "False"), ("", "False"), (URL, "True")]


CACHED = {
    "spec": {"engines": [{"name": "main"}], "modelCacheRef": {"name": "weights"}},
    "cache_claim": "c",
    "cache_registered": "weights",
}


@pytest.mark.parametrize("phase", ["Failed", "Evicting", ""])
def test_a_failed_or_deleted_cache_changes_nothing_on_the_cluster(
    phase: str,
) -> None:
    replica = Replica(a_replica(**CACHED))
    cache = ReplicaCache(replica.context)
    cache.record_report(
        CacheReport(
            cache="weights",
            uid="c1",
            sequence=9,
            cluster="eu",
            phase=phase,
            message="no space",
        )
    )
    replica.step()
    cache.record_change(
        CacheChanged(cache="weights", uid="c1", sequence=10, present=False)
    )
    replica.step()
    assert all(isinstance(order, SendReplicaSignal) for order in replica.orders)
    assert (
        replica.state.cache_claim,
        replica.condition("Ready")[0],
        replica.endpoints(),
    ) == ("c", "True", [URL])


def test_the_size_of_the_cache_is_kept_with_its_claim() -> None:
    """It determines how long an engine may load. A lost cache changes no probe."""
    replica = Replica(a_replica(**CACHED))
    cache = ReplicaCache(replica.context)
    known = CacheReport(
        cache="weights",
        uid="c1",
        sequence=9,
        cluster="eu",
        phase="Ready",
        claim="c",
        size_gib=850,
    )
    for report in (
        known,
        known.model_copy(
            update={"sequence": 10, "phase": "Failed", "claim": "", "size_gib": 0}
        ),
    ):
        cache.record_report(report)
        assert apply_request(replica.state).cache_gib == 850


def test_an_image_of_a_cache_reaches_the_next_apply_and_stays_while_the_cache_is_silent() -> (
    None
):
    pulled, newer = (
        CacheMount(image=f"m@sha256:{digit * 64}", pull_secret=f"pull-{digit}")
        for digit in "ab"
    )
    replica = Replica(
        a_replica(
            spec=ADAPTED,
            cache_claim="c",
            cache_registered="weights",
            adapters={"lora": ReplicaAdapterCache()},
        )
    )
    cache = ReplicaCache(replica.context)
    for name, mount in (("weights", pulled), ("lora", newer)):
        cache.record_report(
            CacheReport(
                cache=name,
                uid=name,
                sequence=1,
                cluster="eu",
                phase="Ready",
                claim=f"of-{name}",
                mount=mount,
            )
        )
    cache.record_report(
        CacheReport(
            cache="weights", uid="weights", sequence=2, cluster="eu", phase="Failed"
        )
    )
    (order,) = [order for order in replica.step() if isinstance(order, Apply)]
    assert order.request.mounts == {"weights": pulled, "lora": newer}
    assert replica.state.inputs().mounts == order.request.mounts
    cache.record_report(
        CacheReport(
            cache="weights",
            uid="weights",
            sequence=3,
            cluster="eu",
            phase="Ready",
            claim="volume",
        )
    )
    assert apply_request(replica.state).mounts == {"lora": newer}


def test_a_replica_keeps_how_its_pods_fill_volumes_while_its_claim_is_an_older_one() -> (
    None
):
    own = CacheMount(
        node_local=NodeLocal(
            spec={"source": "HuggingFace"},
            revision="1" * 40,
            storage_class_name="local",
            size_gib=1,
        )
    )
    replica = Replica(a_replica(**CACHED))
    cache = ReplicaCache(replica.context)
    for sequence, claim, mount in ((1, "a", own), (2, "a", None)):
        cache.record_report(
            CacheReport(
                cache="weights",
                uid="c",
                sequence=sequence,
                cluster="eu",
                phase="Ready",
                claim=claim,
                mount=mount,
            )
        )
        assert apply_request(replica.state).mounts == {"weights": own}
    for sequence, claim, mount in (
        (3, "b", CacheMount(access_mode="ReadWriteOnce")),
        (4, "b", None),
    ):
        cache.record_report(
            CacheReport(
                cache="weights",
                uid="c",
                sequence=sequence,
                cluster="eu",
                phase="Ready",
                claim=claim,
                mount=mount,
            )
        )
    assert apply_request(replica.state).mounts == {}


ADAPTED = {
    "engines": [
        {"name": "main", "adapters": [{"name": "a", "modelCacheRef": {"name": "lora"}}]}
    ],
    "modelCacheRef": {"name": "weights"},
}


def test_the_claim_of_an_adapter_cache_reaches_the_next_apply() -> None:
    replica = Replica(
        a_replica(
            spec=ADAPTED, cache_claim="c", adapters={"lora": ReplicaAdapterCache()}
        )
    )
    cache = ReplicaCache(replica.context)
    assert not any(isinstance(order, Apply) for order in replica.step())
    cache.record_report(
        CacheReport(
            cache="lora", uid="l1", sequence=2, cluster="eu", phase="Ready", claim="new"
        )
    )
    cache.record_report(
        CacheReport(
            cache="lora", uid="l1", sequence=1, cluster="eu", phase="Ready", claim="old"
        )
    )
    cache.record_report(
        CacheReport(
            cache="other",
            uid="o1",
            sequence=1,
            cluster="eu",
            phase="Ready",
            claim="other",
        )
    )
    (order,) = [order for order in replica.step() if isinstance(order, Apply)]
    assert (order.request.cache_claim, order.request.adapter_claims) == (
        "c",
        {"lora": "new"},
    )
    cache.record_report(
        CacheReport(cache="lora", uid="l1", sequence=3, cluster="eu", phase="Failed")
    )
    assert replica.state.adapter_claims() == {"lora": "new"}


def test_a_replica_names_the_adapter_cache_that_it_waits_for() -> None:
    held = APPLIED.model_copy(update={"held": "WaitingForCache"})
    replica = Replica(
        a_replica(
            spec=ADAPTED,
            cache_claim="c",
            applied=held,
            adapters={"lora": ReplicaAdapterCache()},
        )
    )
    replica.step()
    assert replica.condition("ModelAccepted")[1:] == (
        "WaitingForCache",
        "ModelCache ml/lora does not exist, or has not answered yet; engines on eu wait for it",
    )
    ReplicaCache(replica.context).record_report(
        CacheReport(cache="lora", uid="l", sequence=1, cluster="eu", phase="Hydrating")
    )
    replica.step()
    assert (
        replica.condition("ModelAccepted")[2] == "ModelCache ml/lora is Hydrating on eu"
    )


def test_a_replica_names_all_caches_that_it_waits_for() -> None:
    held = APPLIED.model_copy(update={"held": "WaitingForCache"})
    replica = Replica(
        a_replica(spec=ADAPTED, applied=held, adapters={"lora": ReplicaAdapterCache()})
    )
    ReplicaCache(replica.context).record_report(
        CacheReport(cache="lora", uid="l", sequence=1, cluster="eu", phase="Hydrating")
    )
    replica.step()
    assert replica.condition("ModelAccepted")[2] == (
        "ModelCache ml/weights does not exist, or has not answered yet; engines on "
        "eu wait for it; ModelCache ml/lora is Hydrating on eu"
    )


def test_a_missing_crd_is_shown_and_retried_until_it_is_installed() -> None:
    missing = Failure(
        "StackMissing",
        "cluster eu does not serve LeaderWorkerSet of leaderworkerset.x-k8s.io/v1",
    )
    replica = Replica(a_start(), memo=CLUSTER.wire(), apply_failures=[missing] * 2)
    pauses = []
    for _ in range(2):
        replica.step()
        assert replica.condition("ModelAccepted") == (
            "False",
            "ServingStackMissing",
            missing.message,
        )
        due = datetime.fromisoformat(replica.state.retry_at)
        pauses.append(due - replica.now)
        replica.now = due
    assert pauses == [timedelta(seconds=2), timedelta(seconds=4)]
    replica.step()
    replica.state.observed = observed()
    replica.step()
    assert replica.condition("ModelAccepted") == ("True", "Accepted", "")


def test_an_interrupted_apply_leaves_an_incomplete_inventory_so_that_every_step_searches() -> (
    None
):
    replica = Replica(a_replica(served=False, generation=2))
    (order,) = replica.controller.apply()
    assert isinstance(order, Apply)
    replica.delete().step()
    assert replica.deletions() == list(range(3, SWEEP + 1))


def test_a_report_of_a_second_task_attempt_has_a_greater_number() -> None:
    first, second = (
        Replica(a_start()),
        Replica(a_start(), now=BEGINNING + timedelta(seconds=1)),
    )
    numbers = [
        number_of(replica.controller.reports.report_gone())
        for replica in (first, second)
    ]
    assert numbers == sorted(set(numbers))


def number_of(order: Order) -> int:
    assert isinstance(order, SendReplicaSignal)
    number: int = order.signal.payload["sequence"]
    return number


@pytest.mark.parametrize("deleting", [False, True])
def test_a_report_that_a_second_attempt_may_omit_is_in_the_history_before_it_is_sent(
    *, deleting: bool
) -> None:
    replica = Replica(a_replica())
    first = replica.controller.report()
    replica.state.reported = ReplicaReport(phase="Starting", message="an earlier one")
    if deleting:
        replica.delete()
    second = replica.controller.report()
    assert [
        order.recorded
        for order in (*first, *second)
        if isinstance(order, SendReplicaSignal)
    ] == [False, not deleting]


def test_a_replica_without_a_running_deployment_reports_itself_orphaned_and_serves_on() -> (
    None
):
    replica = Replica(a_replica())
    (report,) = replica.controller.report()
    assert isinstance(report, SendReplicaSignal)
    replica.controller.reports.sent(report, found=True)
    assert replica.events("Orphaned") == []
    for _ in range(2):
        replica.controller.reports.sent(report, found=False)
    assert replica.events("Orphaned") == [("ModelDeployment ml/qwen does not run", 2)]
    replica.step()
    assert (
        replica.condition("Ready")[0],
        replica.endpoints(),
        replica.deletions(),
    ) == ("True", [URL], [])
    # A replica under deletion has no receiver either, and that is no news.
    replica.delete().controller.reports.sent(report, found=False)
    assert replica.events("Orphaned")[0][1] == 2


GONE = "the cluster does not exist any more, as its cloud says, and nothing of what was on it"
DELETED = "the InferenceCluster was deleted"
FORCED = "the teardown was forced while the cluster was not connected"


@pytest.mark.parametrize(
    ("cluster", "forced", "event", "left"),
    [
        ({"gone": True}, "", ("ClusterGone", GONE), False),
        ({"present": False}, "", ("Abandoned", DELETED), True),
        ({"connection": None}, "all", ("Abandoned", FORCED), True),
        ({"connection": None}, "step", ("Abandoned", FORCED), True),
    ],
    ids=["its cloud says so", "it was deleted", "all is forced", "one step is forced"],
)
def test_a_teardown_without_its_cluster_ends_with_the_reason_and_lists_possible_leftovers(
    cluster: dict[str, Any], forced: str, event: tuple[str, str], left: bool
) -> None:
    reported = CLUSTER.model_copy(update=cluster)
    state = a_replica(
        served=False, forced=forced, cluster=reported, retry_at="2026-01-01T01:00:00Z"
    )
    replica = Replica(state).delete()
    replica.step()
    found = [(each.reason, each.message) for each in state.events]
    assert [each for each in found if each[0] in ("ClusterGone", "Abandoned")] == [
        event
    ]
    assert [(each.kind, each.reason) for each in state.left_behind] == (
        [("Deployment", event[1])] if left else []
    )
    assert (replica.deletions(), state.forced, state.retry_at) == ([], "", "")
    assert replica.controller.teardown.gone
