"""An object that the cloud says to have created, and never shows."""

from datetime import timedelta

import pytest
from temporalio import workflow

from api_types.errors import NotYet
from api_types.messages.clouds import CloudObjectShown
from tests.activities.clouds.builders import a_pool
from tests.workflows.cloud_cluster.decided import Decided, ready
from workflows.cloud_cluster.failures import may_pass

POOL = "pool/gpu"


def missing() -> Decided:
    """Give a cluster whose pool was deleted by others, and is created again."""
    cluster = ready(a_pool("gpu"))
    cluster.entries.observed(CloudObjectShown(key=POOL, kind="NodePool", name="gpu", phase="Absent"), None)
    cluster.go()
    assert cluster.calls.keys == [POOL]
    return cluster


@pytest.mark.parametrize("is_new", [True, False], ids=["", "history of before"])
def test_prv_3_4_what_is_created_and_never_seen_gets_a_reason_and_a_pause(monkeypatch: pytest.MonkeyPatch, *, is_new: bool) -> None:
    monkeypatch.setattr(workflow, "patched", lambda _: is_new)
    cluster = missing()
    for epoch in (2, 3):
        cluster.end(POOL, "Absent")
        assert (cluster.entry(POOL).epoch, cluster.calls.keys, cluster.entry(POOL).failure.type) == (epoch, [POOL], "")
    cluster.end(POOL, "Absent")
    if not is_new:
        assert (cluster.calls.keys, cluster.entry(POOL).failure.type) == ([POOL], "")
        return
    failure = cluster.entry(POOL).failure
    assert (cluster.calls.keys, failure.type, may_pass(failure)) == ([], NotYet.__name__, True)
    assert "the cloud does not show it" in failure.message
    # It goes on, each time with another token.
    cluster.after(timedelta(seconds=20))
    assert (cluster.entry(POOL).epoch, cluster.calls.keys) == (4, [POOL])
    cluster.end(POOL, "Absent")
    assert cluster.entry(POOL).failure.type == NotYet.__name__
    cluster.after(timedelta(seconds=20))
    cluster.end(POOL, "Ready")
    assert (cluster.entry(POOL).failure.type, cluster.entry(POOL).unseen) == ("", 0)


def test_what_is_deleted_by_others_now_and_then_is_created_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow, "patched", lambda _: True)
    cluster = missing()
    for _ in range(4):
        cluster.end(POOL, "Ready")
        cluster.entries.observed(CloudObjectShown(key=POOL, kind="NodePool", name="gpu", phase="Absent"), None)
        cluster.go()
        cluster.end(POOL, "Absent")
        assert (cluster.calls.keys, cluster.entry(POOL).failure.type) == ([POOL], "")
