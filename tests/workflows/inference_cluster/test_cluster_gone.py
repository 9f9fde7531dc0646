"""Deleting an InferenceCluster whose control plane the cloud reports as gone.

These tests need no server.
"""

import asyncio
from typing import Any

import pytest
from temporalio import workflow

from api_types.messages.clouds import CloudReport
from api_types.messages.delivery import SignalBatchResult
from tests.workflows.environment.serverless import Serverless
from tests.workflows.inference_cluster.builders import a_cluster, a_spec
from workflows.entity.conditions import FALSE, condition_of
from workflows.inference_cluster.cloud_state import CloudLink
from workflows.inference_cluster.workflow import InferenceClusterWorkflow

REPLICA, CACHE = "ml/qwen-eu-0", "ml/weights"


class Deleting:
    """A cloud cluster under deletion with a replica and a cache, and its recorded
    orders and signals.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, gone: bool | None, **changes: Any
    ) -> None:
        self.temporal = Serverless(monkeypatch, "inferencecluster/eu")
        self.temporal.results = {
            "watch_cluster": None,
            "broadcast": None,
            "signal_many": SignalBatchResult(),
        }
        self.memos: list[Any] = []
        monkeypatch.setattr(
            workflow, "upsert_memo", lambda memo: self.memos.extend(memo.values())
        )
        spec = {
            **a_spec(),
            "cluster": {"source": "GKE", "gke": {"region": "europe-west4"}},
        }
        link = CloudLink(
            number=1,
            begun=True,
            report=CloudReport(uid="u", sequence=1, objects=9, cluster_gone=gone),
        )
        state = {
            "spec": spec,
            "cloud": link,
            "occupied": [REPLICA],
            "caches": [CACHE],
            "deletion_timestamp": "2026-01-01T00:00:00Z",
        }
        self.cluster = InferenceClusterWorkflow(a_cluster(**(state | changes)))
        # It has reported its deletion.
        self.cluster.context.set_condition("Ready", FALSE, "Deleting", "")
        asyncio.run(self.cluster.reporter.report_to_scheduler())
        self.cluster.state.occupied = changes.get("occupied", [REPLICA])
        self.temporal.executed.clear()

    def step(self) -> list[tuple[str, Any]]:
        """Run one pass that does not end the workflow; return its signals with their arguments."""
        assert not asyncio.run(self.cluster.tear_down())
        sent = [argument for _, argument in self.temporal.executed]
        self.temporal.executed.clear()
        found = [(each.signal, each.payload) for each in sent if hasattr(each, "kinds")]
        return [
            *found,
            *(
                (one.signal, one.payload)
                for each in sent
                for one in getattr(each, "signals", ())
            ),
        ]

    @property
    def reason(self) -> str:
        found = condition_of(self.cluster.state.conditions, "Deleting")
        assert found is not None
        return found.reason


def test_nothing_is_ordered_at_the_cloud_while_replicas_or_caches_remain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deleting = Deleting(monkeypatch, gone=None)
    for occupied in ([REPLICA], list[str]()):
        deleting.cluster.state.occupied = occupied
        assert "delete" not in [signal for signal, _ in deleting.step()]
        assert deleting.reason == "Occupied"
    assert deleting.cluster.state.cloud.gone is False


def test_users_of_a_lost_control_plane_are_informed_once_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deleting = Deleting(monkeypatch, gone=True)
    # No step of a stack removal would ever complete.
    monkeypatch.setattr(deleting.cluster.removal, "update", lambda: False)
    sent = deleting.step()
    told = [
        (payload["present"], payload.get("gone"))
        for signal, payload in sent
        if signal == "cluster_changed"
    ]
    # Replicas, then caches, which are told a second time. A replica that starts later
    # reads it in the memo.
    assert told == [(False, True), (False, None), (False, None)]
    assert (deleting.memos[-1]["present"], deleting.memos[-1]["gone"]) == (False, True)
    (ordered,) = [payload for signal, payload in sent if signal == "delete"]
    assert (ordered["skipCluster"], ordered["emptied"]) == (True, False)
    assert "forget" in [signal for signal, _ in sent]
    assert deleting.cluster.account()["gone"]
    deleting.cluster.state.cloud.report = CloudReport(
        uid="u", sequence=2, objects=9, phase="Deleting"
    )
    assert not {"forget", "delete"} & {signal for signal, _ in deleting.step()}
    assert deleting.reason == "DeletingCloudCluster"
    assert deleting.cluster.state.left_behind == []
    assert [event.reason for event in deleting.cluster.state.events].count(
        "ControlPlaneGone"
    ) == 1


def test_the_loss_of_an_empty_control_plane_is_sent_to_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deleting = Deleting(monkeypatch, gone=None, occupied=[], caches=[])
    deleting.cluster.state.cloud.emptied = True
    (ordered,) = [payload for signal, payload in deleting.step() if signal == "delete"]
    assert not ordered["skipCluster"]
    deleting.cluster.state.cloud.report = CloudReport(
        uid="u", sequence=2, objects=9, phase="Deleting", cluster_gone=True
    )
    assert deleting.step() == []
    assert deleting.cluster.state.cloud.gone
    assert "ControlPlaneGone" not in [
        event.reason for event in deleting.cluster.state.events
    ], "it was ordered"


def test_a_wanted_cluster_is_unchanged_though_its_control_plane_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deleting = Deleting(monkeypatch, gone=True, deletion_timestamp="")
    report = deleting.cluster.reporter.for_replicas()
    assert (report.present, report.gone, deleting.cluster.account()["gone"]) == (
        True,
        None,
        False,
    )
