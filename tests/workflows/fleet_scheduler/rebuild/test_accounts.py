"""The accounts that entities send to a scheduler without state, and their effect on its cache.

These tests need no server.
"""

from typing import Any

import pytest

from api_types.messages.scheduling import (
    DeploymentAccount,
    KnownReplica,
    ReplicaAccount,
    ReportClass,
)
from api_types.names import workflow_id
from api_types.payloads.limits import PAYLOAD_BYTES_MAX, wire_size
from api_types.payloads.packing import pack
from scheduler import LedgerEntry, reasons, to_wire
from tests.scheduler.builders import cluster, deployment, fleet, put_replicas
from tests.workflows.environment.protocol_fleet import ReportedCluster
from tests.workflows.fleet_scheduler.cycle import LOG, run_cycle
from tests.workflows.fleet_scheduler.requests import place
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import SchedulerState
from workflows.fleet_scheduler.inbox import Inbox
from workflows.fleet_scheduler.rebuild.accounts import Accounts
from workflows.fleet_scheduler.rebuild.adoption import AccountAdoption
from workflows.model_deployment.decisions.account import deployment_account
from workflows.model_deployment.state import DeploymentState, TrackedReplica

NOW = 1_700_000_000_000


def entries(count: int) -> list[LedgerEntry]:
    """Return the replicas of one deployment, each on its own cluster."""
    clusters = [f"c{number:03}" for number in range(count)]
    world = fleet(*(cluster(name, 1) for name in clusters))
    put_replicas(world, deployment(want=count), *(f"{name}/0" for name in clusters))
    return sorted(world.entries(), key=lambda entry: entry.uid)


def tracked(entry: LedgerEntry, **fields: Any) -> TrackedReplica:
    return TrackedReplica(
        uid=entry.uid,
        name=entry.name,
        cluster=entry.cluster,
        index=entry.index,
        entry=to_wire(entry),
        **fields,
    )


def account(*replicas: TrackedReplica, epoch: int = 0) -> dict[str, Any]:
    """Return the account of the deployment that holds these replicas."""
    state = DeploymentState(
        epoch=epoch, replicas={replica.uid: replica for replica in replicas}
    )
    return deployment_account(state, "ml", "m").wire()


def adopted(cache: SchedulerCache, accounts: dict[str, Any]) -> list[LedgerEntry]:
    read = Accounts()
    for name, answer in accounts.items():
        read.add(name, answer)
    return AccountAdoption(cache, Inbox(cache, LOG), LOG).adopt(read.packed())


def a_cache(*clusters: str) -> SchedulerCache:
    cache = SchedulerCache(SchedulerState(), lambda: NOW)
    for name in clusters:
        cache.fleet.put_cluster(cluster(name, 1))
    return cache


def states(cache: SchedulerCache) -> dict[str, str]:
    return {entry.uid: entry.state for entry in cache.fleet.entries()}


def test_a_deployment_accounts_for_all_its_replicas() -> None:
    running, starting, waiting, leaving = (entry for entry in entries(4))
    held = [
        tracked(running, started=True, ready=True, serving=True),
        tracked(starting, starting=True),
        tracked(waiting),
        tracked(leaving, started=True, deletion_reason="Deleted"),
    ]
    cache = a_cache()
    adopted(cache, {"modeldeployment/ml/m": account(*held)})
    assert states(cache) == {
        running.uid: reasons.BOUND,
        starting.uid: reasons.BOUND,
        waiting.uid: reasons.RESERVED,
        leaving.uid: reasons.RELEASING,
    }
    found = cache.fleet.replica(running.uid)
    assert found is not None
    assert (found.ready, found.serving, found.engines) == (True, True, running.engines)
    # A reservation that is never started has to be released eventually.
    assert list(cache.reservations.unbound) == [waiting.uid]


def test_the_account_of_a_thousand_replicas_fits_one_answer() -> None:
    one = entries(1)[0]
    held = [
        tracked(one, started=True).model_copy(
            update={"uid": f"uid-{number:032}", "index": number}
        )
        for number in range(1_000)
    ]
    assert wire_size([replica.wire() for replica in held]) > PAYLOAD_BYTES_MAX // 2
    assert wire_size(account(*held)) < PAYLOAD_BYTES_MAX // 8


def test_an_account_adds_unknown_entries_and_changes_no_known_entry() -> None:
    known, unknown, released = entries(3)
    cache = a_cache()
    for entry in (known, released):
        cache.fleet.put_replica(entry)
    cache.release(released.uid)
    late = account(
        tracked(known, started=True, deletion_reason="Deleted"),
        tracked(unknown, started=True),
        tracked(released, started=True),
    )
    assert [entry.uid for entry in adopted(cache, {"modeldeployment/ml/m": late})] == [
        unknown.uid
    ]
    assert states(cache) == {known.uid: known.state, unknown.uid: reasons.BOUND}


def test_a_replica_that_reports_itself_gone_is_not_charged() -> None:
    (entry,) = entries(1)
    cache = a_cache()
    adopted(
        cache,
        {
            "modeldeployment/ml/m": account(
                tracked(entry, started=True, deletion_reason="Deleted")
            )
        },
    )
    gone = ReplicaAccount(
        uid=entry.uid,
        namespace="ml",
        deployment="m",
        name=entry.name,
        cluster=entry.cluster,
        index=0,
        entry=to_wire(entry),
        gone=True,
    )
    adopted(cache, {workflow_id("ModelReplica", "ml", entry.name): gone.wire()})
    assert states(cache) == {}


def test_replicas_missing_from_visibility_are_queried_and_delay_no_cluster() -> None:
    listed, omitted = entries(2)
    names = {
        entry.uid: workflow_id("ModelReplica", entry.namespace, entry.name)
        for entry in (listed, omitted)
    }
    cache = a_cache()
    AccountAdoption(cache, Inbox(cache, LOG), LOG).check_unlisted(
        [listed, omitted], {names[listed.uid]}
    )
    assert [doubt.workflow_id for doubt in cache.verification.due(NOW)] == [
        names[omitted.uid]
    ]
    assert cache.state.unresponsive == {}


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("modelreplica/ml/x", {"cluster": "us", "entry": None}),
        ("modelreplica/ml/y", []),
        ("modeldeployment/ml/a", {"replicas": 'no base85 "'}),
        ("modeldeployment/ml/b", {"replicas": pack({"uid": "u"})}),
        ("modeldeployment/ml/c", {"replicas": pack([{"uid": "u"}])}),
        ("inferencecluster/eu", {"name": "eu"}),
        ("inferenceclass/h100", None),
    ],
)
def test_an_unreadable_account_is_rejected(name: str, answer: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        Accounts().add(name, answer)


def test_the_reports_of_many_clusters_take_few_bytes() -> None:
    """400 clusters of eight pools with two devices each once exceeded one payload."""
    read = Accounts()
    for number in range(400):
        report = ReportedCluster(
            f"cluster-{number:03}", {f"pool-{pool}": 16 for pool in range(8)}
        ).report(1)
        read.add(f"inferencecluster/cluster-{number:03}", report.wire())
    packed = read.packed()
    assert wire_size(packed) < PAYLOAD_BYTES_MAX // 4
    assert [report.name for report in packed.read_clusters()] == [
        f"cluster-{number:03}" for number in range(400)
    ]


# A running scheduler


def test_a_request_with_an_unknown_replica_waits_for_its_deployments_account() -> None:
    (entry,) = entries(1)
    cache = a_cache("c000", "other")
    mine = place(
        deployment(want=1),
        kept=[KnownReplica(uid=entry.uid, name=entry.name, cluster="c000")],
    )
    rival = place(deployment(want=2, name="rival"))
    (decided,) = run_cycle(cache, ("place", mine.wire()), ("place", rival.wire()))
    assert decided.name == "rival"
    # Meanwhile, the cluster of the unknown replica accepts no new replica.
    waiting = workflow_id("ModelDeployment", mine.namespace, mine.name)
    assert cache.state.unresponsive == {waiting: ["c000"]}
    assert [entry.cluster for entry in cache.fleet.entries()] == ["other"]
    # The account names the replica. It is charged first, and then the request is
    # decided.
    adopted(cache, {waiting: account(tracked(entry, started=True))})
    del cache.state.unresponsive[waiting]
    AccountAdoption(cache, Inbox(cache, LOG), LOG).allow_accounted()
    assert "m" in [request.name for request in run_cycle(cache)]
    assert {found.cluster: found.deployment for found in cache.fleet.entries()} == {
        "c000": "m",
        "other": "rival",
    }


def test_a_released_replica_is_not_queried() -> None:
    (entry,) = entries(1)
    cache = a_cache("c000")
    cache.fleet.put_replica(entry)
    run_cycle(cache, ("released", {"uid": entry.uid}))
    mine = place(
        deployment(want=1),
        kept=[
            KnownReplica(
                uid=entry.uid, name=entry.name, cluster="c000", terminating=True
            )
        ],
    )
    assert [request.name for request in run_cycle(cache, ("place", mine.wire()))] == [
        "m"
    ]
    assert cache.state.unresponsive == {}


@pytest.mark.parametrize(
    "message",
    [
        ("place", place(deployment()).model_copy(update={"epoch": 100}).wire()),
        (
            "report_cluster",
            ReportedCluster("c", {"p": 1})
            .report(1)
            .model_copy(update={"epoch": 100})
            .wire(),
        ),
        (
            "report_class",
            ReportClass(name="h100", generation=1, epoch=100, spec={}).wire(),
        ),
    ],
    ids=["request", "cluster", "class"],
)
def test_a_greater_epoch_in_a_message_raises_the_schedulers_epoch(
    message: tuple[str, Any],
) -> None:
    cache = a_cache()
    cache.state.epoch = cache.state.announced = 7
    run_cycle(cache, message)
    assert (cache.state.epoch, cache.state.announced) == (101, 7)
    run_cycle(cache, message)
    assert cache.state.epoch == 101


def test_an_account_has_the_last_epoch_that_its_entity_saw() -> None:
    read = Accounts()
    read.add("modeldeployment/ml/m", account(epoch=5))
    read.add(
        "inferenceclass/h100",
        ReportClass(name="h100", generation=1, epoch=9, spec={}).wire(),
    )
    read.add("modeldeployment/ml/n", DeploymentAccount(epoch=3).wire())
    assert read.packed().epoch == 9


def test_the_account_of_a_class_without_a_spec_is_read() -> None:
    cache = a_cache()
    adopted(
        cache,
        {
            "inferenceclass/h100": ReportClass(
                name="h100", generation=0, spec=None
            ).wire()
        },
    )
    assert cache.state.classes == {"h100": 0}
