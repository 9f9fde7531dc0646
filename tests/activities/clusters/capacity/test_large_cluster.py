"""The admission of a cluster's maximum number of workloads fits one payload."""

import pytest

from activities.clusters.capacity.admission import REASON_BYTES_MAX, condition_text
from api_types import names
from api_types.messages.capacity import (
    ADMITTED,
    PENDING,
    Admission,
    CapacitySnapshot,
    with_plain_admission,
)
from api_types.payloads.limits import PAYLOAD_BYTES_MAX, wire_size
from scheduler import cluster_view

WORKLOADS = 8_000


def a_report(admission: object) -> dict[str, object]:
    return {"metadata": {"name": "a"}, "status": {"capacity": {"admission": admission}}}


@pytest.mark.slow
@pytest.mark.parametrize("state", [ADMITTED, PENDING])
def test_the_admission_of_eight_thousand_workloads_is_one_payload(state: str) -> None:
    reason = condition_text({"reason": "Gated", "message": "x" * 32_000})
    seen = [
        Admission(
            workload=names.workload_name("ml-team", f"replica-{n}"),
            state=state,
            reason=reason if state == PENDING else "",
            since=n,
        )
        for n in range(WORKLOADS)
    ]
    snapshot = CapacitySnapshot(
        cluster="a", source="kueue", adapter_version="1", admission=seen
    )
    assert wire_size(snapshot) <= PAYLOAD_BYTES_MAX
    view = cluster_view(with_plain_admission(a_report(snapshot.wire()["admission"])))
    assert [(each.workload, each.state, each.since) for each in view.admission] == [
        (each.workload, state, each.since) for each in seen
    ]


def test_a_long_reason_of_another_controller_is_shortened() -> None:
    assert condition_text({"reason": "Gated", "message": "soon"}) == "Gated: soon"
    assert len(condition_text({"message": "ä" * 1_000}).encode()) <= REASON_BYTES_MAX


def test_a_malformed_payload_is_named() -> None:
    for packed in ("not packed", 5, None):
        with pytest.raises(ValueError, match="admission: cannot be unpacked"):
            with_plain_admission(a_report({"$packed": packed}))
