"""An object that the cloud reports as created and never returns."""

from datetime import timedelta

from api_types.errors import NotYet
from api_types.messages.clouds import CloudObjectShown
from tests.activities.clouds.builders import a_pool
from tests.workflows.cloud_cluster.decided import Decided, ready
from workflows.cloud_cluster.failures import may_pass

POOL = "pool/gpu"


def missing() -> Decided:
    """Return a cluster whose externally deleted pool is being created again."""
    cluster = ready(a_pool("gpu"))
    cluster.entries.observed(
        CloudObjectShown(key=POOL, kind="NodePool", name="gpu", phase="Absent"), None
    )
    cluster.go()
    assert cluster.calls.keys == [POOL]
    return cluster


def test_an_object_that_the_cloud_never_shows_gets_a_reason_and_a_pause() -> None:
    cluster = missing()
    for epoch in (2, 3):
        cluster.end(POOL, "Absent")
        assert (
            cluster.entry(POOL).epoch,
            cluster.calls.keys,
            cluster.entry(POOL).failure.type,
        ) == (epoch, [POOL], "")
    cluster.end(POOL, "Absent")
    failure = cluster.entry(POOL).failure
    assert (cluster.calls.keys, failure.type, may_pass(failure)) == (
        [],
        NotYet.__name__,
        True,
    )
    assert "the cloud does not list it" in failure.message
    # It goes on, each time with another token.
    cluster.after(timedelta(seconds=20))
    assert (cluster.entry(POOL).epoch, cluster.calls.keys) == (4, [POOL])
    cluster.end(POOL, "Absent")
    assert cluster.entry(POOL).failure.type == NotYet.__name__
    cluster.after(timedelta(seconds=20))
    cluster.end(POOL, "Ready")
    assert (cluster.entry(POOL).failure.type, cluster.entry(POOL).unseen) == ("", 0)


def test_an_occasionally_deleted_object_is_created_again_at_once() -> None:
    cluster = missing()
    for _ in range(4):
        cluster.end(POOL, "Ready")
        cluster.entries.observed(
            CloudObjectShown(key=POOL, kind="NodePool", name="gpu", phase="Absent"),
            None,
        )
        cluster.go()
        cluster.end(POOL, "Absent")
        assert (cluster.calls.keys, cluster.entry(POOL).failure.type) == ([POOL], "")
