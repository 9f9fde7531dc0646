"""One deployment cannot take the time of all others, because its selectors have a
budget.

The other deployments are decided as if it did not exist.
"""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_types.limits import SELECTORS_COST_MAX, SELECTORS_REFUSED_MAX
from scheduler import decide_some, read_need, to_wire
from scheduler.cel import Match, Selector, compile_selector
from scheduler.cel.limits import BATCH_WORK_MAX, REQUEST_WORK_MAX
from scheduler.cel.selector import _compile
from scheduler.decide import apply, decide
from scheduler.fleet.fleet import Fleet
from scheduler.hardware import device_matching
from scheduler.hardware.assignment import assign_exactly
from scheduler.model.decision import Decision
from scheduler.model.devices import DeviceEntry
from scheduler.model.inputs import DeploymentView, ScheduleRequest
from scheduler.model.rules import MatchRules
from tests.environment.effort import effort_below
from tests.random_cases import random_cases
from tests.scheduler.builders import (
    NOW,
    actions,
    alone,
    ask,
    at_least,
    cluster,
    condition,
    decided,
    deployment,
    engine,
    fleet,
    forget,
    gpu,
    message,
    places,
    pool,
    put_replicas,
)

CLASSES = 40
ENTRIES = 16
ONES = f"[{','.join(['1'] * 50)}]"


def dear(number: int) -> str:
    """Return a selector that costs nearly the limit; it matches."""
    return f"{ONES}.all(a, {ONES}.all(b, a + b > {-number}))"


def devices(number: int) -> tuple[DeviceEntry, ...]:
    return tuple(
        replace(
            gpu(f"{80 + entry}Gi", name=f"gpu-{entry}"),
            attributes=(("n", "int", number),),
        )
        for entry in range(ENTRIES)
    )


def large_fleet() -> Fleet:
    """Many different nodes, so that each selector is evaluated often."""
    return fleet(
        *(cluster(f"c-{n:02}", pool("p", 4, *devices(n))) for n in range(CLASSES))
    )


def hungry(
    name: str = "hungry", selectors: int = 8, seed: int = 0, **fields: object
) -> DeploymentView:
    """A deployment that admission accepts and whose selectors are too expensive for a
    large fleet.
    """
    request = ask(*(dear(seed * 100 + n) for n in range(selectors)))
    return deployment(engine("main", alone(request)), name=name, **fields)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_deployment_with_too_expensive_selectors_is_rejected_with_a_reason() -> None:
    world = large_fleet()
    with effort_below(500):
        decision = decided(world, hungry())
    assert condition(decision) == ("False", "InvalidNodeSelector")
    said = message(decision)
    assert (
        f"on the {CLASSES} kinds of nodes in this fleet takes more than {REQUEST_WORK_MAX} steps,"
        in said
    )
    assert "simplify engine main, member Standalone, request gpu, selector 1 (" in said
    assert places(decision) == []


def test_a_selector_that_fails_at_once_is_little_work() -> None:
    """The engine cannot look up a version among constants: an error, but a cheap one."""
    stopped = 'device.attributes["gpu.nvidia.com"].v in ["9.0.0"]'
    entry = replace(gpu(), attributes=(("v", "version", "9.0.0"),))
    assert 0 < compile_selector(stopped).match(entry).work < 50


@pytest.mark.slow
def test_running_replicas_of_such_a_deployment_stay() -> None:
    world = large_fleet()
    put_replicas(world, deployment(want=2), "c-00/0", "c-01/0")
    assert actions(decided(world, hungry(name="m", want=2))) == {
        "c-00/0": "Keep",
        "c-01/0": "Keep",
    }


@pytest.mark.slow
def test_the_decision_does_not_depend_on_cached_evaluations() -> None:
    first, again = decided(large_fleet(), hungry()), decided(large_fleet(), hungry())
    forget(device_matching.member_need)
    forget(_compile)
    assert first == again == decided(large_fleet(), hungry())


def test_selectors_within_the_budget_of_a_small_fleet_are_used() -> None:
    world = fleet(cluster("a", pool("p", 4, *devices(0)[:1])))
    assert places(decided(world, hungry())) == ["a/0"]


def others(dice: random.Random) -> list[DeploymentView]:
    return [
        deployment(
            engine(
                "main",
                alone(
                    ask(
                        at_least(f"{dice.randint(70, 100)}Gi"), count=dice.randint(1, 8)
                    )
                ),
            ),
            name=f"d-{n}",
            want=dice.randint(1, 6),
        )
        for n in range(5)
    ]


@pytest.mark.slow
@random_cases(10)
@given(seed=st.integers(0, 1_000_000))
def test_the_rest_of_the_batch_is_decided_as_without_it(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - repeatable on purpose
    asked = [ScheduleRequest(f"ask-{view.name}", view) for view in others(dice)]
    with_it = list(asked)
    with_it.insert(
        dice.randint(0, len(asked)), ScheduleRequest("ask-hungry", hungry(want=3))
    )
    without = {
        decision.request_id: decision for decision in decide(large_fleet(), asked, NOW)
    }
    beside = {
        decision.request_id: decision
        for decision in decide(large_fleet(), with_it, NOW)
    }
    refused = beside.pop("ask-hungry")
    assert condition(refused) == ("False", "InvalidNodeSelector")
    assert beside == without


@pytest.mark.slow
def test_a_batch_ends_at_its_work_limit_and_the_next_one_continues() -> None:
    asked = [
        ScheduleRequest(f"ask-{n}", hungry(f"d-{n}", seed=n + 1)) for n in range(4)
    ]
    asked.append(ScheduleRequest("ask-plain", deployment(name="plain")))
    whole = decide(large_fleet(), asked, NOW)
    world, rest, batches = large_fleet(), list(asked), []
    found: list[Decision] = []
    while rest:
        batch = decide_some(world, rest, NOW)
        batches.append(len(batch))
        for decision in batch:
            apply(world, decision)
        found += batch
        rest = rest[len(batch) :]
    assert len(batches) > 1
    assert batches[0] == BATCH_WORK_MAX // REQUEST_WORK_MAX
    assert [(d.request_id, d.placements, d.conditions) for d in found] == [
        (d.request_id, d.placements, d.conditions) for d in whole
    ]


@pytest.mark.slow
def test_a_batch_does_not_pay_twice_for_one_template() -> None:
    asked = [ScheduleRequest(f"ask-{n}", hungry(f"d-{n}")) for n in range(6)]
    assert len(decide_some(large_fleet(), asked, NOW)) == len(asked)


def test_selectors_that_cost_too_much_together_are_not_evaluated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Admission refuses them; a deployment that bypassed it does not reach a device."""
    view = hungry(selectors=30)
    monkeypatch.setattr("scheduler.cel.selector.Selector.match", None)
    decision = decided(fleet(cluster("a", 4)), view)
    assert condition(decision) == ("False", "InvalidNodeSelector")
    assert (
        f"units or more, {SELECTORS_COST_MAX} are allowed; simplify engine main, "
        "member Standalone, request gpu" in message(decision)
    )


@pytest.mark.slow
def test_a_policy_that_lets_one_selector_cost_more_lets_all_cost_more() -> None:
    world = fleet(cluster("a", pool("p", 4, gpu())))
    world.set_options(replace(world.options, max_cost=100_000))
    assert places(decided(world, hungry(selectors=30))) == ["a/0"]


def test_only_the_first_selectors_that_do_not_compile_are_compiled() -> None:
    wrong = [f"nosuch{n}" for n in range(100)]
    said = device_matching.selector_problems(
        [engine("main", alone(ask(*wrong)))], MatchRules()
    )
    assert len(said) == SELECTORS_REFUSED_MAX + 1
    assert (
        said[-1]
        == "16 selectors do not compile; fix these first, the selectors after them were not checked"
    )


def test_an_exact_search_counts_as_work() -> None:
    """Two requests that only another order can serve, and sixteen that no order serves,
    which takes a long search.
    """
    entries = tuple(
        gpu("80Gi", 3, name=f"g-{n}", device_class=f"class-{n}") for n in range(16)
    )
    world = fleet(
        *(
            cluster(
                f"c-{n}",
                pool(
                    "p", 4, *entries, gpu(f"{n}Mi", 1, name="other", device_class="o")
                ),
            )
            for n in range(40)
        )
    )
    view = deployment(
        engine(
            "main",
            alone(
                *(ask(at_least("80Gi"), count=2, name=f"r-{n}") for n in range(15)),
                ask(at_least("80Gi"), count=4, name="big"),
            ),
        )
    )
    with effort_below(500):
        decision = decided(world, view)
    assert places(decision) == []


@pytest.mark.parametrize(
    ("view", "said"),
    [
        (
            deployment(*(engine(f"e-{n}") for n in range(9))),
            "engines: must have at most 8 items, got 9",
        ),
        (
            deployment(engine("main", *(alone(ask("true")) for _ in range(3)))),
            "engines[0].members: must have at most 2 items, got 3",
        ),
        (
            deployment(
                engine("main", alone(*(ask("true", name=f"r-{n}") for n in range(17))))
            ),
            "requests: must have at most 16 items, got 17",
        ),
        (
            deployment(engine("main", alone(ask("x" * 32_769)))),
            "engines: all selectors together must be at most 32768 bytes, got 32769",
        ),
    ],
)
def test_a_request_beyond_manifest_limits_is_rejected(
    view: DeploymentView, said: str
) -> None:
    with pytest.raises(ValueError, match=said.replace("[", r"\[").replace("]", r"\]")):
        read_need(to_wire(view))


@pytest.mark.parametrize("each", [0, 7, 11])
def test_a_search_for_an_assignment_is_work(
    each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_matching, "_WORK_PER_STEP", each)
    node = pool(
        "p",
        1,
        gpu("80Gi", 3, name="a", device_class="a"),
        gpu("80Gi", 3, name="b", device_class="b"),
    )
    requests = tuple(
        ask(at_least("80Gi"), count=count, name=f"r{at}")
        for at, count in enumerate((3, 2, 2))
    )
    need = device_matching.MemberNeed(requests, MatchRules())
    selectors = sum(
        selector.match(entry).work
        for (selector,) in need.selectors
        for entry in node.device_set.entries
    )
    _, steps = assign_exactly([[True, True]] * 3, [3, 2, 2], [3, 3], ["a", "b"], [0, 0])
    assert steps > 2
    assert need.fit(node.device_set).work == selectors + steps * each


def test_selectors_over_the_limit_on_one_node_are_not_evaluated_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_matching, "REQUEST_WORK_MAX", 100)
    forget(device_matching.member_need)
    need = device_matching.member_need(
        (ask(*(dear(9_000 + n) for n in range(3))),), MatchRules()
    )
    evaluated: list[DeviceEntry] = []
    match = Selector.match

    def counted(self: Selector, entry: DeviceEntry) -> Match:
        evaluated.append(entry)
        return match(self, entry)

    monkeypatch.setattr(Selector, "match", counted)
    assert not need.fit(pool("p", 1, *devices(1)).device_set).fits
    forget(device_matching.member_need)
    assert len(evaluated) == 1
