"""Nodes without accelerators have slots, which are counted and never claimed."""

import pytest

from scheduler.model.inputs import PoolView
from scheduler.model.policy import SchedulerOptions
from tests.scheduler.builders import (
    IS_GPU,
    alone,
    ask,
    cluster,
    decided,
    deployment,
    engine,
    fleet,
    gpu,
    message,
    nic,
    placed_engines,
    places,
    pool,
)

IS_NIC = 'device.driver == "nic.example.com"'
SMALL = engine("main", alone(ask(IS_NIC, name="slot")))


def cpus(claim: str = "Slot") -> PoolView:
    return pool("cpus", 2, nic(count=4, claim=claim, name="cpu"))


@pytest.mark.parametrize(("accounting", "placed"), [("node", 2), ("device-safe", 8)])
def test_slots_are_counted_like_claimed_devices(accounting: str, placed: int) -> None:
    options = SchedulerOptions(accounting=accounting)
    world = fleet(cluster("a", pool("p", 2), cpus()), options=options)
    assert len(places(decided(world, deployment(SMALL, want=9)))) == placed


def test_the_placement_of_a_slot_names_no_class_and_no_resource() -> None:
    world = fleet(cluster("a", cpus()))
    (placed,) = placed_engines(deployment(SMALL), "cpus", world, "a")
    (request,) = placed.members[0].requests
    assert (request.name, request.count) == ("slot", 1)
    assert (request.device_class, request.resource_name) == ("", "")


def test_a_claimed_device_is_preferred_to_a_slot() -> None:
    entries = (gpu(claim="Slot", name="slot"), gpu(name="real"))
    world = fleet(cluster("a", pool("p", 1, *entries)))
    view = deployment(engine("main", alone(ask(IS_GPU))))
    (placed,) = placed_engines(view, "p", world, "a")
    assert placed.members[0].requests[0].device_class


def test_the_reason_names_the_pool_whose_devices_are_only_synthetic() -> None:
    world = fleet(cluster("a", pool("p", 2), cpus("Synthetic")))
    text = message(decided(world, deployment(SMALL)))
    assert "best: a/cpus, its requests match synthetic devices only" in text
    assert "claim: Slot" in text
