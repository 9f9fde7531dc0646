"""Equal inputs of a decision have one digest, and any other input changes it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from scheduler import Fleet, InputsDigest, ScheduleRequest, SchedulerOptions
from scheduler.model.inputs import ClusterView, KeptReplica, LedgerEntry
from tests.scheduler.builders import (
    IS_GPU,
    alone,
    ask,
    cluster,
    deployment,
    engine,
    placed_engines,
    pool,
)

VIEW = deployment(engine("main", alone(ask(IS_GPU))), name="chat")
REQUEST = ScheduleRequest("chat/1", VIEW)
EARLIER = ScheduleRequest(
    "talk/1", deployment(engine("main", alone(ask(IS_GPU))), name="talk")
)


def a_replica(fleet: Fleet, index: int, cluster_name: str) -> LedgerEntry:
    engines = placed_engines(VIEW, ["p"], fleet, cluster_name)
    return LedgerEntry(
        f"uid-{index}",
        VIEW.namespace,
        "chat",
        cluster_name,
        index,
        f"chat-{cluster_name}-{index}",
        engines,
        "Bound",
    )


def a_fleet(names: str = "abc", indexes: tuple[int, ...] = (0, 1, 2)) -> Fleet:
    fleet = Fleet()
    for name in names:
        fleet.put_cluster(cluster(name, pool("p", 4)))
    for index in indexes:
        fleet.put_replica(a_replica(fleet, index, "abc"[index]))
    return fleet


def digest(fleet: Fleet, *requests: ScheduleRequest) -> str:
    return InputsDigest().of(fleet, requests or (REQUEST,))


def test_the_order_of_updates_does_not_change_the_digest() -> None:
    assert digest(a_fleet("cab", (2, 0, 1))) == digest(a_fleet())


CHANGES: dict[str, Callable[[Fleet], object]] = {
    "a cluster": lambda fleet: fleet.put_cluster(cluster("b", pool("p", 5))),
    "a label of a cluster": lambda fleet: fleet.put_cluster(
        cluster("b", pool("p", 4), labels={"site": "b"})
    ),
    "one cluster more": lambda fleet: fleet.put_cluster(cluster("d", pool("p", 4))),
    "a replica": lambda fleet: fleet.observe("uid-1", ready=True, serving=True),
    "one replica less": lambda fleet: fleet.release("uid-1"),
    "the policy": lambda fleet: fleet.set_options(SchedulerOptions(profile="dense")),
    "a preemption": lambda fleet: fleet.preempted_at.update({("ml", "talk"): 1}),
    "an unfinished search": lambda fleet: fleet.unfinished_searches.update(
        {("ml", "talk"): 1}
    ),
    "a search that ended": lambda fleet: fleet.ended_searches.update(
        {("ml", "talk"): 1}
    ),
    "a refusal": lambda fleet: fleet.refused.update({("ml", "talk", "a", "p"): 1}),
    "a rebuild": lambda fleet: setattr(fleet, "awaited", frozenset({"a"})),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_every_input_of_a_decision_changes_the_digest_of_a_known_fleet(
    change: Callable[[Fleet], object],
) -> None:
    fleet, known = a_fleet(), InputsDigest()
    before = known.of(fleet, [REQUEST])
    change(fleet)
    after = known.of(fleet, [REQUEST])
    assert after != before
    assert after == digest(fleet)


@pytest.mark.parametrize(
    "requests",
    [
        (ScheduleRequest("chat/2", VIEW),),
        (ScheduleRequest("chat/1", replace(VIEW, replicas=7)),),
        (ScheduleRequest("chat/1", VIEW, kept=(KeptReplica("uid-0", ready=True),)),),
        (EARLIER, REQUEST),
    ],
    ids=[
        "its id",
        "what is wanted",
        "the health of a replica",
        "one before it in the batch",
    ],
)
def test_the_digest_covers_the_request_and_the_requests_before_it(
    requests: tuple[ScheduleRequest, ...],
) -> None:
    assert digest(a_fleet(), *requests) != digest(a_fleet())


def test_a_digest_does_not_read_unchanged_objects_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Calls of the module's own function are counted.
    from scheduler.fleet.snapshots import inputs_digest  # noqa: PLC0415

    read: list[object] = []
    tree = inputs_digest._tree

    def counted(item: ClusterView | LedgerEntry) -> object:
        read.append(item)
        return tree(item)

    monkeypatch.setattr(inputs_digest, "_tree", counted)
    fleet, known = a_fleet(), InputsDigest()
    known.of(fleet, [REQUEST])
    assert len(read) == 6
    fleet.put_cluster(cluster("b", pool("p", 5)))
    known.of(fleet, [REQUEST])
    assert len(read) == 7
