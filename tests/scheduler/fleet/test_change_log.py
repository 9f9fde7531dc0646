"""Readers of the change log, while it is kept short."""

from scheduler.fleet.change_log import Change, ChangeLog
from scheduler.fleet.fleet import Fleet
from scheduler.fleet.overlay import FleetOverlay
from tests.scheduler.builders import NOW, cluster, deployment, fleet, put_replicas


def long_log() -> ChangeLog[Change]:
    log = ChangeLog[Change]()
    for _ in range(20_001):
        log.add((None, None))
    return log


def test_a_long_log_loses_its_older_half() -> None:
    log = long_log()
    log.trim()
    assert log.end == 20_001
    assert log.since(10_000) is None
    assert len(list(log.since(10_001) or ())) == 10_000


def test_a_reader_of_every_batch_never_recounts() -> None:
    world: Fleet = fleet(cluster("a", 1))
    for _ in range(20_000):
        world.ledger.changes.add((None, None))
    position = world.ledger.changes.end
    put_replicas(world, deployment(), "a/0")
    FleetOverlay(world, NOW)
    assert [after for _, after in world.ledger.changes.since(position) or ()] == [
        world.replica(uid) for uid in world.owned("ml", "m")
    ]
