"""Plans, explanations and rendering decide like the live scheduler about the same
fleet.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from activities.render.inputs.settings import RenderSettings
from api_types.resources.kinds import BY_KIND
from client.planning.live_plan import plan_live
from client.planning.proposed_changes import ProposedChanges, owner_of
from client.planning.questions import HEADROOM, Question, QuestionContext, answer
from client.planning.rendering import render_all
from fleet_client.errors import Refused
from fleet_client.placement.explanation import explanation
from fleet_client.placement.live_fleet import LiveFleet
from fleet_client.refs.targets import Target
from scheduler import (
    Decision,
    Fleet,
    ScheduleRequest,
    SchedulerOptions,
    apply,
    decide,
    decision_state,
    offline_deployment,
    offline_fleet,
    plan_offline,
    read_policy,
    restore_decision_state,
    sort_documents,
)
from tests.client.fleetfiles import Tree, a_class, a_cluster, a_deployment, a_replica

NOW = 1_700_000_000_000
MINUTE = 60_000
CLASSES = {"priorityClasses": {"vip": 1000, "high": 100}}


def sized(name: str, nodes: int, **parts: Any) -> Tree:
    """A deployment of one replica that needs so many nodes."""
    made = a_deployment(name, 1, **parts)
    made["spec"]["template"]["spec"]["engines"][0]["copies"] = nodes
    return made


def ranked(name: str, klass: str, **scheduling: Any) -> Tree:
    return a_deployment(
        name, 1, spec={"scheduling": {"priorityClassName": klass, **scheduling}}
    )


def labelled(tree: Tree, **labels: str) -> Tree:
    return {**tree, "metadata": {**tree["metadata"], "labels": labels}}


def apart_from(name: str, **labels: str) -> Tree:
    """A deployment that shares no cluster with replicas that have these labels."""
    term = {"selector": {"matchLabels": labels}, "topologyKey": ""}
    return a_deployment(
        name, 1, spec={"scheduling": {"antiAffinity": {"required": [term]}}}
    )


@dataclass(frozen=True)
class Case:
    """`running` were placed a while ago, `arriving` are decided now in this order.

    `want` are the clusters of the arriving ones.
    """

    story: str
    clusters: tuple[Tree, ...]
    arriving: tuple[Tree, ...]
    want: Mapping[str, list[str]]
    running: tuple[Tree, ...] = ()
    policy: Mapping[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> SchedulerOptions:
        return read_policy(dict(self.policy))


CASES = [
    Case(
        "of equals the first to arrive is placed",
        (a_cluster("eu", nodes=1),),
        (a_deployment("zeta", 1), a_deployment("alpha", 1)),
        {"zeta": ["eu"], "alpha": []},
    ),
    Case(
        "priority comes before arrival",
        (a_cluster("eu", nodes=1),),
        (a_deployment("early", 1), ranked("late", "high")),
        {"early": [], "late": ["eu"]},
        policy=CLASSES,
    ),
    Case(
        "StrictOrder reserves capacity for one that waits",
        (a_cluster("eu"),),
        (sized("big", 4), sized("small", 1)),
        {"big": [], "small": []},
        policy={"queueOrder": "StrictOrder"},
    ),
    Case(
        "BestEffort places a small one that arrives later",
        (a_cluster("eu"),),
        (sized("big", 4), sized("small", 1)),
        {"big": [], "small": ["eu"]},
    ),
    Case(
        "those that find a place spread",
        (a_cluster("eu"), a_cluster("us")),
        (a_deployment("chat", 2), a_deployment("talk", 1)),
        {"chat": ["eu", "us"], "talk": ["eu"]},
    ),
    Case(
        "a running replica of higher priority is not preempted",
        (a_cluster("eu", nodes=1),),
        (ranked("urgent", "high", preemptionPolicy="LowerPriority"),),
        {"urgent": []},
        running=(ranked("precious", "vip"),),
        policy=CLASSES,
    ),
    Case(
        "minAvailable protects a running replica of lower priority",
        (a_cluster("eu", nodes=1),),
        (ranked("urgent", "high", preemptionPolicy="LowerPriority"),),
        {"urgent": []},
        running=(a_deployment("kept", 1, spec={"scheduling": {"minAvailable": 1}}),),
        policy=CLASSES,
    ),
    Case(
        "a running replica of lower priority is preempted",
        (a_cluster("eu"),),
        (ranked("urgent", "high", preemptionPolicy="LowerPriority"),),
        {"urgent": ["eu"]},
        running=(a_deployment("plain", 2),),
        policy=CLASSES,
    ),
    Case(
        "the anti-affinity of a running replica keeps others away",
        (a_cluster("eu"), a_cluster("us", nodes=1)),
        (labelled(a_deployment("noisy", 2), app="noisy"),),
        {"noisy": ["us"]},
        running=(apart_from("quiet", app="noisy"),),
    ),
]
BY_STORY = pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)


def requests(case: Case, trees: tuple[Tree, ...]) -> list[ScheduleRequest]:
    """Return the requests of deployments to the live scheduler, in the order of its
    queue.
    """
    documents = sort_documents([*case.clusters, *trees])
    views = [offline_deployment(tree, documents) for tree in documents.deployments]
    classes = case.options.priority_classes
    return [
        ScheduleRequest(f"live/{view.name}", view)
        for view in sorted(
            views, key=lambda v: -classes.get(v.policy.priority_class, 0)
        )
    ]


def before(case: Case) -> Fleet:
    """Return the live fleet with the running replicas."""
    fleet = offline_fleet(sort_documents([a_class(), *case.clusters]), case.options)
    for request in requests(case, case.running):
        (decision,) = decide(fleet, [request], NOW - MINUTE)
        assert not decision.shortfall
        apply(fleet, decision, request.deployment)
    for entry in list(fleet.entries()):
        fleet.bind(entry.uid, NOW - MINUTE)
        fleet.observe(entry.uid, ready=True, serving=True)
    return fleet


def scheduled(fleet: Fleet, case: Case) -> dict[str, Decision]:
    """Decide the arriving deployments one by one, as the live scheduler does.

    This changes the fleet.
    """
    found = {}
    for request in requests(case, case.arriving):
        (decision,) = decide(fleet, [request], NOW)
        apply(fleet, decision, request.deployment)
        found[decision.deployment] = decision
    return found


def documents_of(case: Case) -> list[Tree]:
    """Return the same fleet as files."""
    replicas = [
        a_replica(entry.name, entry.cluster, entry.deployment, entry.index)
        for entry in before(case).entries()
    ]
    return [a_class(), *case.clusters, *case.running, *replicas, *case.arriving]


def live_fleet(case: Case, fleet: Fleet, deployments: tuple[Tree, ...]) -> LiveFleet:
    clusters = {tree["metadata"]["name"]: tree for tree in case.clusters}
    stored = [
        {**tree, "metadata": {**tree["metadata"], "uid": "", "generation": 0}}
        for tree in deployments
    ]
    return LiveFleet(
        fleet,
        {"h200": a_class()},
        clusters,
        {owner_of(tree): tree for tree in stored},
        {},
    )


def placed(decisions: list[Any]) -> dict[str, tuple[list[str], str]]:
    """Return the clusters by deployment, with the message of a shortfall."""
    return {
        d["name"]: (
            [p["cluster"] for p in d["placements"]],
            d["message"] if d["shortfall"] else "",
        )
        for d in decisions
    }


def answers(decisions: Iterable[Decision]) -> dict[str, tuple[list[str], str]]:
    return {
        d.deployment: (
            [p.cluster for p in d.placements],
            d.message if d.shortfall else "",
        )
        for d in decisions
    }


def expected(case: Case) -> dict[str, tuple[list[str], str]]:
    return answers(scheduled(before(case), case).values())


@BY_STORY
def test_the_live_scheduler_decides(case: Case) -> None:
    assert {
        name: clusters for name, (clusters, _) in expected(case).items()
    } == case.want


@BY_STORY
def test_an_offline_plan_agrees(case: Case) -> None:
    decisions = plan_offline(documents_of(case), case.options, NOW)["decisions"]
    assert {
        name: found for name, found in placed(decisions).items() if name in case.want
    } == expected(case)
    victims = [
        victim.replica_name
        for decision in scheduled(before(case), case).values()
        for victim in decision.victims
    ]
    assert [
        eviction["replica"]
        for decision in decisions
        for eviction in decision["evictions"]
    ] == victims


@BY_STORY
def test_a_live_plan_agrees(case: Case) -> None:
    live = live_fleet(case, before(case), case.running)
    tree = plan_live(live, ProposedChanges(trees=case.arriving), None, NOW)
    assert {
        name: found
        for name, found in placed(tree["decisions"]).items()
        if name in case.want
    } == expected(case)


@BY_STORY
def test_a_live_plan_lists_its_decisions_as_steps(case: Case) -> None:
    tree = plan_live(
        live_fleet(case, before(case), case.running),
        ProposedChanges(trees=case.arriving),
        None,
        NOW,
    )
    created = [
        f"+ {p['cluster']}/{p['replica']} {p['action']}"
        for d in tree["decisions"]
        for p in d["placements"]
        if p["action"] != "Keep"
    ]
    assert sorted(
        line for step in tree["steps"] for line in step if line.startswith("+")
    ) == sorted(created)


@BY_STORY
def test_an_explanation_agrees(case: Case) -> None:
    """The client reads clusters, deployments, the ledger and the other state of the
    scheduler as JSON.
    """
    fleet = before(case)
    scheduled(fleet, case)
    copy = offline_fleet(sort_documents([a_class(), *case.clusters]), case.options)
    for entry in fleet.entries():
        copy.put_replica(entry)
    restore_decision_state(copy, json.loads(json.dumps(decision_state(fleet))))
    live = live_fleet(case, copy, (*case.running, *case.arriving))
    explained = [
        explanation(live, Target.of(BY_KIND["ModelDeployment"], "ml", name), NOW + 1)
        for name in case.want
    ]
    again = [
        decide(fleet, [request], NOW + 1)[0]
        for request in requests(case, case.arriving)
    ]
    assert placed(explained) == answers(again)
    assert {
        name: clusters for name, (clusters, _) in placed(explained).items()
    } == case.want


def rendered(case: Case) -> set[tuple[str, str]]:
    """Return the rendered replicas and their clusters."""
    outputs, _ = render_all(documents_of(case), {}, RenderSettings(), case.options)
    return {(one.title, one.cluster) for one in outputs}


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if all(case.want.values())],
    ids=lambda case: case.story,
)
def test_rendered_replicas_agree(case: Case) -> None:
    fleet = before(case)
    scheduled(fleet, case)
    assert rendered(case) == {
        (f"ModelReplica ml/{entry.name}", entry.cluster)
        for entry in fleet.entries()
        if entry.state != "Releasing"
    }


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if not all(case.want.values())],
    ids=lambda case: case.story,
)
def test_rendering_refuses_a_deployment_without_any_place_with_the_schedulers_message(
    case: Case,
) -> None:
    with pytest.raises(Refused) as caught:
        rendered(case)
    decisions = scheduled(before(case), case).values()
    assert set(caught.value.details) == {
        f"ModelDeployment ml/{d.deployment}: {d.message}"
        for d in decisions
        if not d.placements
    }


def test_a_question_first_decides_waiting_deployments_in_order_of_arrival() -> None:
    """One node for two deployments.

    The node belongs to the first deployment, so it has room for a replica of the first
    and for no replica of the second.
    """
    case = CASES[0]
    documents = sort_documents(documents_of(case))
    views = {
        (view.namespace, view.name): view
        for view in (
            offline_deployment(tree, documents) for tree in documents.deployments
        )
    }
    context = QuestionContext(offline_fleet(documents), views, documents.classes)
    room = {
        name: answer(Question(HEADROOM, ("ml", name)), context, NOW)["headroom"]
        for name in case.want
    }
    assert room == {"zeta": 1, "alpha": 0}


def test_a_new_deployment_is_planned_after_waiting_ones() -> None:
    """The waiting deployment gets the new node, whatever the name of the new one."""
    case = Case(
        "",
        (a_cluster("eu", nodes=1),),
        (a_deployment("first", 1), a_deployment("waits", 1)),
        {},
    )
    fleet = before(case)
    scheduled(fleet, case)
    proposed = ProposedChanges(
        trees=[a_cluster("us", nodes=1), a_deployment("a-new-one", 1)]
    )
    tree = plan_live(live_fleet(case, fleet, case.arriving), proposed, None, NOW)
    assert {
        name: clusters for name, (clusters, _) in placed(tree["decisions"]).items()
    } == {"a-new-one": [], "waits": ["us"]}
