"""When services may route an endpoint whose backend could not be applied in an outage
of the control cluster, and which reports a restarted directory receives.

These tests need no server.
"""

from datetime import UTC, datetime, timedelta

import pytest

from api_types import names
from api_types.messages.gateway_work import AppliedBackend
from api_types.messages.routing import EndpointWithdrawn
from workflows.entity import backoff
from workflows.entity.context import EntityContext
from workflows.entity.failures import Failure
from workflows.entity.registering.endpoint import (
    GATEWAY_RECOVERS,
    ApplyBackendOrder,
    EndpointOrder,
    EndpointPublication,
    PublishedEndpoint,
    ReportOrder,
    WantedEndpoint,
)
from workflows.entity.state import EntityState

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
WANTED = WantedEndpoint(url="http://10.0.0.1/ml/qwen/v1", labels={})
PASSES_MAX = 20
LOST, REFUSED = (
    Failure("ClusterUnreachable", "no answer"),
    Failure("PermissionDenied", "not allowed"),
)


class Owner:
    """The owner of an endpoint outside Temporal, with its clock."""

    def __init__(self) -> None:
        self.now = BEGINNING
        self.context = EntityContext(
            "ModelEndpoint",
            EntityState(uid="u"),
            lambda: None,
            "modelendpoint/ml/qwen",
            lambda: self.now,
        )
        self.publication = EndpointPublication(
            self.context, PublishedEndpoint(), "ModelEndpoint"
        )

    def orders(self) -> list[EndpointOrder]:
        return self.publication.publish(WANTED, may_apply=True)

    def apply(self, *failures: Failure) -> None:
        """Apply the backend after these failures."""
        for failure in failures:
            assert isinstance(self.orders()[0], ApplyBackendOrder)
            self.publication.failed(failure)
            self.now += timedelta(minutes=30)
        (order,) = self.orders()
        assert isinstance(order, ApplyBackendOrder)
        self.publication.applied(order, AppliedBackend(backend="me-qwen", digest="d"))

    def send(self, orders: list[EndpointOrder]) -> list[str | None]:
        """Return the backends in these reports, with None for a withdrawn endpoint."""
        reports = [
            order.signal.payload for order in orders if isinstance(order, ReportOrder)
        ]
        return [
            report["endpoint"].get("backend", "") if report.get("endpoint") else None
            for report in reports
        ]

    def answer(self) -> None:
        """Deliver the directory's answer to the last report."""
        assert self.publication.record_withdrawn(
            EndpointWithdrawn(uid="u", sequence=self.publication._state.sequence)
        )

    def backends(self) -> list[str]:
        """Return the backends of the endpoints that are reported now."""
        reports = [
            order.signal.payload
            for order in self.orders()
            if isinstance(order, ReportOrder)
        ]
        return [report["endpoint"]["backend"] for report in reports]


def test_a_backend_is_routed_after_an_outage_when_the_gateway_has_recovered() -> None:
    owner = Owner()
    owner.apply(LOST)
    owner.context.requeue_time = None
    assert owner.backends() == [""]
    assert owner.context.requeue_time == owner.now + GATEWAY_RECOVERS
    owner.now += GATEWAY_RECOVERS - timedelta(seconds=1)
    assert owner.backends() == []
    owner.now += timedelta(seconds=1)
    assert owner.backends() == ["me-qwen"]


@pytest.mark.parametrize(
    "other", [-1, 1], ids=["an earlier report", "a report that was never sent"]
)
def test_only_the_answer_to_the_last_report_withdraws_an_endpoint(other: int) -> None:
    owner = Owner()
    owner.apply()
    owner.send(owner.orders())
    owner.send(owner.publication.withdraw())
    sequence = owner.publication._state.sequence
    assert not owner.publication.record_withdrawn(
        EndpointWithdrawn(uid="u", sequence=sequence + other)
    )
    assert not owner.publication.may_be_removed
    owner.answer()
    assert owner.publication._state.is_withdrawn


@pytest.mark.parametrize(
    "failures", [(), (REFUSED,)], ids=["no failure", "another failure"]
)
def test_a_backend_is_routed_at_once_without_an_outage(
    failures: tuple[Failure, ...],
) -> None:
    owner = Owner()
    owner.apply(*failures)
    assert owner.backends() == ["me-qwen"]


def test_a_routed_endpoint_stays_routed_when_its_backend_is_applied_again_after_an_outage() -> (
    None
):
    owner = Owner()
    owner.apply()
    assert owner.backends() == ["me-qwen"]
    owner.publication._state.applied_from = "before the gateway was connected again"
    owner.apply(LOST)
    assert owner.backends() == []


def test_an_unanswered_withdrawal_is_reported_to_the_next_directory() -> None:
    owner = Owner()
    owner.apply()
    owner.backends()
    assert owner.send(owner.publication.withdraw()) == [None]
    assert owner.send(owner.publication.withdraw()) == []
    first = owner.publication._state.sequence
    owner.publication.report_again()
    assert owner.send(owner.publication.withdraw()) == [None]
    assert owner.publication._state.sequence > first
    assert owner.send(owner.publication.withdraw()) == []
    owner.answer()
    owner.publication.report_again()
    assert owner.send(owner.publication.withdraw()) == [], "it is answered"


def test_an_unanswered_suspension_is_reported_to_the_next_directory() -> None:
    owner = Owner()
    owner.apply()
    owner.backends()
    assert owner.send(owner.publication.suspend()) == [""]
    owner.publication.report_again()
    assert owner.send(owner.publication.suspend()) == [""]
    owner.answer()
    owner.publication.report_again()
    assert owner.send(owner.publication.suspend()) == [], "it is answered"
    assert owner.backends() == ["me-qwen"]
    owner.publication.report_again()
    assert owner.backends() == ["me-qwen"], "the published endpoint is reported again"
    assert owner.backends() == []


@pytest.mark.parametrize(
    ("since", "wait"),
    [
        (backoff.DRIFT_MEMORY, backoff.repair(12)),
        (2 * backoff.DRIFT_MEMORY, backoff.repair(0)),
    ],
    ids=["a fight", "new"],
)
def test_a_repair_soon_after_another_waits_longer(
    since: timedelta, wait: timedelta
) -> None:
    owner = Owner()
    owner.apply()
    owner.send(owner.orders())
    state = owner.publication._state
    state.observed, state.drift_repairs, state.drift_repaired_at = (
        "of others",
        12,
        (owner.now - since).isoformat(),
    )
    assert owner.orders() == []
    owner.now += wait - timedelta(seconds=1)
    assert owner.orders() == []
    owner.now += timedelta(seconds=1)
    assert isinstance(owner.orders()[0], ApplyBackendOrder)
    assert state.drift_repaired_at == owner.now.isoformat()


def test_a_repair_that_keeps_failing_ends_its_passes_and_resumes_on_success() -> None:
    owner = Owner()
    owner.apply()
    owner.send(owner.orders())
    owner.publication._state.observed = "of others"
    attempts, ends = 0, owner.now + timedelta(minutes=20)
    while owner.now < ends:
        passes, owner.context.queued, owner.context.requeue_time = 0, True, None
        while owner.context.queued:
            passes, owner.context.queued = passes + 1, False
            assert passes < PASSES_MAX, (
                f"passes without a wait, {owner.now - BEGINNING} after the beginning"
            )
            for _ in owner.orders():
                attempts, owner.now = attempts + 1, owner.now + timedelta(seconds=3)
                owner.publication.failed(LOST)
        assert owner.context.requeue_time
        owner.now = max(owner.now, owner.context.requeue_time)
    detected = sum(
        event.count
        for event in owner.context.state.events
        if event.reason == "DriftDetected"
    )
    assert detected == attempts
    (order,) = owner.orders()
    assert isinstance(order, ApplyBackendOrder)
    owner.publication.applied(
        order, AppliedBackend(backend="me-qwen", digest="of others")
    )
    assert not any(isinstance(order, ApplyBackendOrder) for order in owner.orders())


def test_an_abandoned_backend_is_listed_with_its_slices() -> None:
    owner = Owner()
    owner.apply()
    owner.publication.abandon("the teardown was forced")
    service = names.endpoint_service_name("ml", "qwen")
    left = owner.context.state.left_behind
    assert [(each.kind, each.namespace, each.name, each.location) for each in left] == [
        ("Service", "ml", service, "control cluster"),
        ("label", "ml", f"kubernetes.io/service-name={service}", "control cluster"),
    ]
    assert not owner.publication._state.backend_started
