"""The objects of a serving stack that are not in the wanted state."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from activities.observe import stack as judge
from activities.observe.control import read_gateway
from activities.observe.gateway import observe_gateway
from activities.observe.stack import READY, Shortfall

Json = dict[str, Any]

UNSEEN = Shortfall("its controller has not seen its spec yet")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Case(NamedTuple):
    """One object, and its judgement."""

    story: str
    judged: Callable[[Json], Shortfall]
    item: Json
    expected: Shortfall


def a_workload(
    generation: int = 1, observed: int = 1, replicas: int | None = None, **status: int
) -> Json:
    """Return a workload of a chart. `status` has the counts of its controller."""
    spec = {} if replicas is None else {"replicas": replicas}
    return {
        "metadata": {"name": "x", "generation": generation},
        "spec": spec,
        "status": {"observedGeneration": observed, **status},
    }


def with_conditions(
    *conditions: tuple[str, str], generation: int = 1, observed: int | None = None
) -> Json:
    """Return an object with these conditions as (type, status)."""
    told = [
        {
            "type": kind,
            "status": status,
            "reason": "Why",
            "observedGeneration": observed,
        }
        for kind, status in conditions
    ]
    return {
        "metadata": {"name": "x", "generation": generation},
        "status": {"conditions": told},
    }


def a_set(desired: int, available: int, **more: int) -> Json:
    return a_workload(desiredNumberScheduled=desired, numberAvailable=available, **more)


CASES = (
    Case(
        "all copies serve",
        judge.deployment,
        a_workload(replicas=2, updatedReplicas=2, availableReplicas=2),
        READY,
    ),
    Case(
        "a Deployment without a number wants one copy",
        judge.deployment,
        a_workload(),
        Shortfall("0/1 pods are updated"),
    ),
    Case(
        "a Deployment that is scaled to nothing is ready",
        judge.deployment,
        a_workload(replicas=0),
        READY,
    ),
    Case(
        "an update that is not out yet gates, though the old copies serve",
        judge.deployment,
        a_workload(replicas=2, updatedReplicas=1, availableReplicas=2),
        Shortfall("1/2 pods are updated"),
    ),
    Case(
        "a copy that is updated and not available gates",
        judge.deployment,
        a_workload(replicas=2, updatedReplicas=2, readyReplicas=2, availableReplicas=1),
        Shortfall("1/2 pods are available"),
    ),
    Case(
        "an updated copy beside the old one, which alone is available, gates",
        judge.deployment,
        {
            **a_workload(),
            "status": {
                "observedGeneration": 1,
                "replicas": 2,
                "updatedReplicas": 1,
                "availableReplicas": 1,
            },
        },
        Shortfall("1 pods of the old version are still there"),
    ),
    Case(
        "an update that is not out yet is said before the pods that it replaces",
        judge.deployment,
        {
            **a_workload(replicas=2),
            "status": {
                "observedGeneration": 1,
                "replicas": 3,
                "updatedReplicas": 1,
                "availableReplicas": 2,
            },
        },
        Shortfall("1/2 pods are updated"),
    ),
    Case(
        "counts of an older spec say nothing",
        judge.deployment,
        a_workload(generation=2, observed=1, updatedReplicas=1, availableReplicas=1),
        UNSEEN,
    ),
    Case(
        "a Deployment that nobody reconciled yet",
        judge.deployment,
        {"metadata": {"name": "x", "generation": 1}, "spec": {}},
        UNSEEN,
    ),
    Case(
        "a StatefulSet counts ready copies",
        judge.stateful_set,
        a_workload(replicas=1, updatedReplicas=1, readyReplicas=1),
        READY,
    ),
    Case(
        "a copy of a StatefulSet that is not ready gates",
        judge.stateful_set,
        a_workload(replicas=1, updatedReplicas=1, availableReplicas=1),
        Shortfall("0/1 pods are ready"),
    ),
    Case(
        "a StatefulSet of an older spec",
        judge.stateful_set,
        a_workload(generation=2, updatedReplicas=1, readyReplicas=1),
        UNSEEN,
    ),
    Case("no node takes a pod of a DaemonSet", judge.daemon_set, a_set(0, 0), READY),
    Case(
        "one broken node of five is reported and does not gate",
        judge.daemon_set,
        a_set(5, 4),
        Shortfall("4/5 pods are available", gates=False),
    ),
    Case(
        "one available pod of a DaemonSet is enough",
        judge.daemon_set,
        a_set(5, 1),
        Shortfall("1/5 pods are available", gates=False),
    ),
    Case(
        "no available pod of a DaemonSet is not",
        judge.daemon_set,
        a_set(5, 0),
        Shortfall("0/5 pods are available"),
    ),
    Case("every pod of a DaemonSet", judge.daemon_set, a_set(5, 5), READY),
    Case(
        "a DaemonSet that nobody reconciled yet",
        judge.daemon_set,
        a_workload(generation=1, observed=0),
        UNSEEN,
    ),
    Case(
        "a definition",
        judge.definition,
        with_conditions(("Established", "True"), ("NamesAccepted", "True")),
        READY,
    ),
    Case(
        "a definition that is not established",
        judge.definition,
        with_conditions(("NamesAccepted", "True"), ("Established", "False")),
        Shortfall("Established is False: Why"),
    ),
    Case(
        "a definition whose names another one has",
        judge.definition,
        with_conditions(("Established", "True"), ("NamesAccepted", "False")),
        Shortfall("NamesAccepted is False: Why"),
    ),
    Case(
        "a definition that nobody looked at yet",
        judge.definition,
        with_conditions(),
        Shortfall("Established is not reported yet"),
    ),
    Case(
        "a definition that is being deleted is established until it is gone",
        judge.definition,
        {
            **with_conditions(("Established", "True"), ("NamesAccepted", "True")),
            "metadata": {"name": "x", "deletionTimestamp": "2026-01-01T12:00:00Z"},
        },
        Shortfall("is being deleted"),
    ),
    Case(
        "a Gateway is accepted",
        judge.accepted,
        with_conditions(("Accepted", "True"), observed=1),
        READY,
    ),
    Case(
        "accepted was an older spec",
        judge.accepted,
        with_conditions(("Accepted", "True"), generation=2, observed=1),
        Shortfall("Accepted is not reported yet for the current generation"),
    ),
    Case(
        "a refused class",
        judge.accepted,
        with_conditions(("Accepted", "False")),
        Shortfall("Accepted is False: Why"),
    ),
    Case(
        "no word about a class",
        judge.accepted,
        with_conditions(("Programmed", "True")),
        Shortfall("Accepted is not reported yet"),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_the_judgement_of_an_object(case: Case) -> None:
    assert case.judged(case.item) == case.expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(
            {
                "addresses": [
                    {"type": "IPAddress", "value": "10.0.0.1"},
                    {"value": "10.0.0.2"},
                ]
            },
            "10.0.0.1",
            id="two addresses",
        ),
        pytest.param(
            {"addresses": [{"type": "Hostname", "value": "lb.example.com"}]},
            "lb.example.com",
            id="a host name",
        ),
        pytest.param(
            {"addresses": [{"value": "2001:db8::1"}]},
            "2001:db8::1",
            id="brackets are put where a URL is made",
        ),
        pytest.param({"addresses": []}, "", id="none"),
        pytest.param(
            {"addresses": [{"type": "IPAddress"}]}, "", id="one without a value"
        ),
        pytest.param({}, "", id="no word about addresses"),
        pytest.param(None, "", id="no status"),
    ],
)
def test_the_first_address_of_a_gateway_counts(
    status: Json | None, expected: str
) -> None:
    assert (
        judge.address({"metadata": {"name": "inference-gateway"}, "status": status})
        == expected
    )


def an_event(
    reason: str, at: str, *, kind: str = "Warning", about: str = "envoy", **more: Any
) -> Json:
    metadata = {"name": reason, "creationTimestamp": "2026-01-01T00:00:00Z"}
    about_it = {"kind": "Service", "name": about}
    return {
        "metadata": metadata,
        "type": kind,
        "reason": reason,
        "message": "m",
        "involvedObject": about_it,
        "lastTimestamp": at,
        **more,
    }


def test_the_newest_warnings_about_an_object_are_returned() -> None:
    events = [
        an_event("Oldest", "2026-01-01T00:00:01Z"),
        an_event("Second", "2026-01-01T00:00:03Z"),
        an_event("Third", "2026-01-01T00:00:02Z"),
        an_event(
            "Newest",
            None,  # type: ignore[arg-type]
            series={"lastObservedTime": "2026-01-01T00:00:04.000000Z"},
        ),
        an_event("Normal", "2026-01-01T00:00:09Z", kind="Normal"),
        an_event("Other", "2026-01-01T00:00:09Z", about="another"),
    ]
    assert judge.warnings(events, "envoy") == ["Newest: m", "Second: m", "Third: m"]


def test_a_long_event_is_cut_and_one_without_a_time_is_the_oldest() -> None:
    long = {**an_event("Long", "2026-01-01T00:00:01Z"), "message": "x" * 1000}
    timeless = {**an_event("Timeless", ""), "metadata": {"name": "timeless"}}
    first, second = judge.warnings([timeless, long], "envoy")
    assert (first, second) == (f"Long: {'x' * 294}", "Timeless: m")


def a_pod(started: str, **metadata: str) -> Json:
    return {
        "metadata": {"name": "x", **metadata},
        "status": {"startTime": started} if started else {},
    }


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([a_pod("2026-01-01T11:59:59Z")], True, id="it was started before"),
        # Both times are truncated to seconds, so their order is unknown, and an
        # unnecessary restart costs little.
        pytest.param([a_pod("2026-01-01T12:00:00Z")], True, id="in the same second"),
        pytest.param([a_pod("2026-01-01T12:00:01Z")], False, id="it was started after"),
        pytest.param(
            [a_pod("2026-01-01T12:00:01Z"), a_pod("2026-01-01T11:00:00Z")],
            True,
            id="one of two was started before",
        ),
        pytest.param(
            [a_pod("2026-01-01T11:00:00Z", deletionTimestamp="2026-01-01T12:00:09Z")],
            False,
            id="it is on its way out",
        ),
        pytest.param([a_pod("")], False, id="it did not start yet"),
        pytest.param([], False, id="there is none"),
    ],
)
def test_pods_started_before_the_first_pools_are_recognised(
    pods: list[Json], expected: bool
) -> None:
    assert judge.started_before(pods, NOON) is expected


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        pytest.param(
            [
                {
                    "type": "Established",
                    "status": "True",
                    "lastTransitionTime": "2026-01-01T12:00:00Z",
                }
            ],
            NOON,
            id="established",
        ),
        pytest.param(
            [
                {
                    "type": "Established",
                    "status": "False",
                    "lastTransitionTime": "2026-01-01T12:00:00Z",
                }
            ],
            None,
            id="not established",
        ),
        pytest.param(
            [{"type": "Established", "status": "True"}],
            None,
            id="nobody says since when",
        ),
        pytest.param(
            [{"type": "Established", "status": "True", "lastTransitionTime": "noon"}],
            None,
            id="no time",
        ),
        pytest.param([], None, id="no word"),
    ],
)
def test_since_when_a_definition_is_established(
    conditions: list[Json], expected: datetime | None
) -> None:
    assert (
        judge.established_at(
            {"metadata": {"name": "x"}, "status": {"conditions": conditions}}
        )
        == expected
    )


@pytest.mark.parametrize(
    "address",
    [
        "1.2.3.4/../x",
        "a b",
        "-a.example.com",
        "user@example.com",
        "1.2.3.4:80",
        "fe80::1%\x1b[31m",
        "\x1b[31m",
        "x" * 300,
        7,
        ["a"],
        {},
    ],
)
def test_an_invalid_address_is_ignored(address: object) -> None:
    item = {**with_conditions(("Accepted", "True"), ("Programmed", "True"))}
    item["status"]["addresses"] = [{"value": address}]
    assert judge.address(item) == ""
    for message in (observe_gateway(item).message, read_gateway(item).message):
        assert "address" in message
        assert len(message) < 400
        assert "\x1b" not in message


@pytest.mark.parametrize(
    "address", ["192.0.2.1", "2001:db8::1", "lb-1.eu.example.com", "localhost"]
)
def test_an_ip_address_and_a_host_name_are_addresses(address: str) -> None:
    item = {**with_conditions(("Accepted", "True"), ("Programmed", "True"))}
    item["status"]["addresses"] = [{"value": address}]
    assert (
        judge.address(item),
        observe_gateway(item).address,
        read_gateway(item).address,
    ) == (address, address, address)


def test_a_time_without_a_zone_is_ignored() -> None:
    assert judge.read_time("2026-01-01T00:00:00") is None
