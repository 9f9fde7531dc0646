"""The problems of the page: their causes, order, next steps and commands."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from front.store.projection import Projection, Tree
from tests.front.browser import Browser, Tab
from tests.front.shown_fleet import (
    a_cluster,
    a_deployment,
    a_replica,
    an_object,
    condition,
)
from tests.front.shown_page import served

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest_asyncio.fixture
async def tab(browser: Browser) -> AsyncIterator[Tab]:
    projection = Projection()
    projection.complete = True
    # A file of the page instead of the page itself, which would follow collections
    # during the test.
    async with served(projection) as url, browser.tab(f"{url}ui/icon.svg") as tab:
        yield tab


def deleting(replica: Tree) -> Tree:
    replica["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return replica


NOW = 1_767_225_600_000  # 2026-01-01T00:00:00Z


LATER = NOW + 31 * 60_000


PROBLEMS = (
    "m.problemsShown(new Map(Object.entries(a[0]).map(([kind, trees]) => [kind, new Map("
    "trees.map((t) => [`${t.metadata.namespace ?? ''}/${t.metadata.name}`, t]))])), "
    "a[1], a[2]).map((p) => [p.needsPerson, p.names.join(), p.reason, p.cause, p.command])"
)


ADVICE = {"InferenceCluster": {"Unreachable": "check the network of {name}"}}


async def problems(tab: Tab, *trees: Tree, now: int = NOW) -> Any:
    objects: dict[str, list[Tree]] = {}
    for tree in trees:
        objects.setdefault(tree["kind"], []).append(tree)
    return await tab.ask_module("problems.js", PROBLEMS, objects, ADVICE, now)


async def test_problems_are_sorted_with_those_for_a_person_first(tab: Tab) -> None:
    starting = condition("False", "ModelStarting", "engine main loads. It takes long.")
    chat = a_deployment("chat", conditions=(starting,))
    down = a_cluster("us", ready=False)
    cause = "the API server does not answer"
    waits = [False, "team-a/chat", "ModelStarting", "engine main loads"]
    describe = "modelplane describe md/chat -n team-a"
    assert await problems(tab, chat, down, a_cluster("eu")) == [
        [True, "us", "Unreachable", cause, "modelplane describe ic/us"],
        [*waits, describe],
    ]
    # A wait that lasts needs a person.
    assert (await problems(tab, chat, now=LATER))[0] == [True, *waits[1:], describe]


async def test_a_wait_of_a_cluster_comes_after_a_deployment_that_needs_a_person(
    tab: Tab,
) -> None:
    cluster = a_cluster("eu")
    cluster["status"]["conditions"] = [condition("False", "Installing", "installs")]
    failed = condition("False", "InvalidInput", "replicas is negative")
    chat = a_deployment("chat", conditions=(failed,), phase="Failed")
    found = await problems(tab, cluster, chat)
    assert [row[:2] for row in found] == [[True, "team-a/chat"], [False, "eu"]]


async def test_a_deployment_shows_the_cause_of_its_worst_replica(tab: Tab) -> None:
    starting = [condition("False", "ModelStarting", "engine main starts")]
    message = "ImagePullBackOff: vllm:typo"
    replica = a_replica(
        "chat-eu-0",
        "chat",
        "eu",
        phase="Starting",
        conditions=starting,
        engines=[{"name": "main", "message": message}],
    )
    cause = f"team-a/chat-eu-0: {message}"
    first = a_deployment("chat", conditions=(condition("False", "ModelStarting"),))
    rollout = a_deployment("chat", rollout={"total": 1, "revisions": [1]})
    undo = "modelplane rollout undo md/chat -n team-a"
    assert [
        await problems(tab, deployment, replica) for deployment in (first, rollout)
    ] == [
        [
            [
                True,
                "team-a/chat",
                "PodsFail",
                cause,
                "modelplane describe md/chat -n team-a",
            ]
        ],
        [[True, "team-a/chat", "BadRollout", cause, undo]],
    ]


async def test_a_deletion_is_a_problem_when_it_is_blocked_or_lasts(tab: Tab) -> None:
    wait = {"object": "v1 Pod x", "why": "a finalizer"}
    teardown = {"since": "2026-01-01T00:00:00Z", "waitingFor": [wait]}
    replica = deleting(a_replica("old-0", "old", "eu", teardown=teardown))
    assert await problems(tab, replica) == []
    ((needs, *_, cause, command),) = await problems(tab, replica, now=LATER)
    assert (needs, cause) == (True, "the deletion waits for v1 Pod x (a finalizer)")
    assert command == "modelplane retry mr/old-0 -n team-a"


async def test_silent_temporal_is_the_only_problem_of_the_control_plane(
    tab: Tab,
) -> None:
    expression = (
        "a.map((s) => m.controlPlaneProblems(s).map((p) => [p.kind, p.command]))"
    )
    silent, answers = {"silent": True, "answered": 1, "polled": 1}, {"silent": False}
    found = await tab.ask_module(
        "problems.js",
        expression,
        None,
        {"temporal": answers, "workers": answers},
        {"temporal": answers, "workers": silent},
        {"temporal": silent, "workers": silent},
    )
    assert found == [
        [],
        [],
        [["Workers", "modelplane workers status"]],
        [["Temporal", "modelplane up"]],
    ]


async def test_the_cause_is_the_condition_that_ready_quotes(tab: Tab) -> None:
    absent = "InferenceClass smal does not exist; apply it"
    cluster = a_cluster("apac")
    cluster["status"]["conditions"] = [
        condition("False", "Missing", "a feature", "FeaturesAvailable"),
        condition("False", "WaitingForClasses", absent, "ClusterReady"),
        condition("False", "Creating", f"WaitingForClasses: {absent}"),
    ]
    ((_, _, reason, cause, _),) = await problems(tab, cluster)
    assert (reason, cause) == (
        "WaitingForClasses",
        "InferenceClass smal does not exist",
    )


async def test_the_cause_of_a_cache_is_its_source_and_not_each_cluster(
    tab: Tab,
) -> None:
    silent = "no usable answer from hub.example: it is unreachable"
    status = {
        "conditions": [
            condition("False", "Unresolved", f"{silent}; again soon", "RevisionPinned"),
            condition("False", "Creating", f"Hydrating: eu: {silent}; us: {silent}"),
        ]
    }
    cache = an_object("ModelCache", "weights", "team-a", status=status)
    ((_, _, reason, cause, _),) = await problems(tab, cache)
    assert (reason, cause) == ("Unresolved", silent)


async def test_the_cause_of_a_wait_for_capacity_is_not_its_count(tab: Tab) -> None:
    why = "0/1 clusters are available: 1 were over quota (used 1 of 1 nodes)"
    message = f"1 of 2 replicas scheduled (checked 1 clusters). {why}."
    told = condition("False", "InsufficientCapacity", message, "ReplicasScheduled")
    waiting = condition("False", "InsufficientCapacity", message)
    chat = a_deployment("chat", conditions=(told, waiting))
    ((_, _, _, cause, command),) = await problems(tab, chat)
    assert (cause, command) == (why, "modelplane explain md/chat -n team-a")


@pytest.mark.parametrize(("seconds", "person"), [(30, False), (90, True)])
async def test_an_absent_object_needs_a_person_after_a_minute(
    tab: Tab, seconds: int, person: bool
) -> None:
    absent = "InferenceGateway default does not exist; apply one"
    service = an_object(
        "ModelService",
        "chat",
        "team-a",
        status={"conditions": [condition("False", "WaitingForGateway", absent)]},
    )
    found = await problems(tab, service, now=NOW + seconds * 1000)
    assert [each[0] for each in found] == [person]


async def test_the_silence_of_a_cluster_is_not_the_cause_of_a_deployment(
    tab: Tab,
) -> None:
    lost = [condition("False", "ClusterUnreachable", "us does not answer")]
    own = condition("False", "Unavailable", "0 of 1 replicas serve")
    found = await problems(
        tab,
        a_cluster("us", ready=False),
        a_replica("chat-us-0", "chat", "us", phase="Unreachable", conditions=lost),
        a_deployment("chat", conditions=(own,)),
    )
    assert [row[3] for row in found] == [
        "the API server does not answer",
        "0 of 1 replicas serve",
    ]


async def test_one_cause_is_shown_once(tab: Tab) -> None:
    lost = [condition("False", "ClusterUnreachable", "us does not answer")]
    found = await problems(
        tab,
        a_cluster("us", ready=False),
        a_cluster("asia", ready=False),
        a_replica("chat-us-0", "chat", "us", phase="Unreachable", conditions=lost),
        a_deployment("chat"),
    )
    assert [names for _, names, *_ in found] == ["asia,us"]
