"""A wait that times out shows the blocking conditions and the next command."""

import asyncio
from typing import Any, cast

import pytest

from api_types import labels
from api_types.resources.kinds import BY_KIND
from client.failures import ExitCode, exit_code_of
from client.follow import waiting
from client.follow.apply import ApplyResult, until_applied_are_ready
from client.follow.waiting import Goal, until_gone, until_ready, wait_until_ready
from client.output.progress import Progress
from fleet_client.errors import CommandFailed, NoAnswer, TimedOut
from fleet_client.refs.seen import Execution
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import SCALED_TO_ZERO
from fleet_client.requests import Requested
from fleet_client.temporal.control_plane import ControlPlane
from workflows.inference_cluster.state import ClusterState
from workflows.inference_cluster.status import occupied_message

OSLO = Target.of(BY_KIND["InferenceCluster"], None, "oslo")
QWEN = Target.of(BY_KIND["ModelDeployment"], "ml", "qwen")


class Held:
    """A control plane whose objects never go away."""

    async def waiting(self, target: Target) -> list[str]:
        return [f"a finalizer on {target.name}"]


def test_a_deletion_that_takes_too_long_names_the_object_in_the_next_step() -> None:
    with pytest.raises(TimedOut) as failure, Progress() as progress:
        asyncio.run(until_gone(cast("ControlPlane", Held()), [QWEN], 0.0, progress))
    assert failure.value.details == ("ModelDeployment ml/qwen: a finalizer on qwen",)
    assert failure.value.next_step == (
        "wait longer with `modelplane delete md/qwen -n ml --wait`, or skip the current step: "
        "`modelplane delete md/qwen -n ml --force --reason TEXT`"
    )


class InUse:
    """A control plane whose cluster waits for a replica, as the workflow of the cluster
    reports it.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        self.state = ClusterState(occupied=["ml/qwen-1"], spec=spec)

    async def waiting(self, target: Target) -> list[str]:
        return (
            [occupied_message(target.name, self.state)]
            if target == OSLO
            else ["being deleted"]
        )


def next_step_of(spec: dict[str, Any], targets: list[Target]) -> str:
    with pytest.raises(TimedOut) as failure, Progress() as progress:
        asyncio.run(
            until_gone(cast("ControlPlane", InUse(spec)), targets, 0.0, progress)
        )
    return failure.value.next_step


@pytest.mark.parametrize(
    "targets", [[OSLO], [QWEN, OSLO]], ids=["alone", "after another object"]
)
def test_the_deletion_of_a_cluster_in_use_offers_first_to_move_its_replicas(
    targets: list[Target],
) -> None:
    assert next_step_of({}, targets) == (
        "move the replicas elsewhere with `modelplane delete ic/oslo --evict "
        "--wait`, wait longer with `modelplane delete ic/oslo --wait`, or skip the "
        "current step: `modelplane delete ic/oslo --force --reason TEXT`"
    )


def test_the_deletion_of_a_drained_cluster_does_not_offer_to_move_its_replicas_again() -> (
    None
):
    drained = {"taints": [{"key": labels.MAINTENANCE, "effect": "NoExecute"}]}
    assert next_step_of(drained, [OSLO]).startswith(
        "wait longer with `modelplane delete ic/oslo --wait`, or skip "
    )


class Late:
    """A control plane whose object is Ready with its previous spec until the third
    read.
    """

    def __init__(self) -> None:
        self.looks = 0

    async def execution(self, _target: Target) -> Execution:
        return Execution()

    async def describe(self, target: Target) -> dict[str, Any]:
        self.looks += 1
        if self.looks == 1:
            raise NoAnswer(f"no worker answers for {target.title}", next_step="none")
        applied = self.looks > 2
        generation = 2 if applied else 1
        return {
            "metadata": {"generation": generation},
            "status": {
                "observedGeneration": min(generation, self.looks - 2),
                "conditions": [
                    {"type": "Ready", "status": "True", "reason": "Available"}
                ],
            },
            "appliedRequestIds": ["r1"] if applied else [],
        }


def test_a_wait_begins_with_the_request_that_no_worker_has_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "_POLL_SECONDS", 0.001)
    plane = Late()
    with Progress() as progress:
        (tree,) = asyncio.run(
            until_ready(
                cast("ControlPlane", plane),
                [Goal.of(Requested(QWEN, "r1"))],
                60,
                progress,
            )
        )
    assert (plane.looks, tree["status"]["observedGeneration"]) == (4, 2)


def test_a_wait_for_an_unseen_request_reports_it() -> None:
    plane = Late()
    plane.looks = -10_000
    with pytest.raises(TimedOut) as failure, Progress() as progress:
        asyncio.run(
            until_ready(
                cast("ControlPlane", plane),
                [Goal.of(Requested(QWEN, "r1"))],
                0.0,
                progress,
            )
        )
    assert failure.value.details == (
        "ModelDeployment ml/qwen: accepted by Temporal, not yet seen by a worker",
    )


class Shown:
    """A control plane that shows these states of an object, the last one forever."""

    def __init__(self, *trees: dict[str, Any]) -> None:
        self.trees = list(trees)

    async def describe(self, _target: Target) -> dict[str, Any]:
        return self.trees.pop(0) if len(self.trees) > 1 else self.trees[0]

    async def execution(self, _target: Target) -> Execution:
        return Execution("")


def a_tree(
    *conditions: dict[str, Any], generation: int = 1, observed: int = 1, **more: Any
) -> dict[str, Any]:
    spec = {"replicas": more.pop("replicas")} if "replicas" in more else {}
    return {
        "metadata": {"generation": generation},
        "spec": spec,
        "status": {
            "observedGeneration": observed,
            "conditions": list(conditions),
            **more,
        },
    }


def a_condition(
    kind: str, status: str, reason: str, message: str = "", **fields: Any
) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        **fields,
    }


def waited(
    monkeypatch: pytest.MonkeyPatch,
    goal: Goal,
    *trees: dict[str, Any],
    seconds: float = 60,
) -> list[dict[str, Any]]:
    monkeypatch.setattr(waiting, "_POLL_SECONDS", 0.001)
    return asyncio.run(
        wait_until_ready(cast("ControlPlane", Shown(*trees)), [goal], seconds)
    )


READY = a_condition("Ready", "True", "Available")
KIMI = Target.of(BY_KIND["ModelEndpoint"], "ml", "kimi")
CHAT = Target.of(BY_KIND["ModelService"], "ml", "chat")
INVALID_URL = (
    'Invalid spec.url: http://localhost: "localhost" is not a fully qualified host name'
)
FINAL_FAILURES = [
    (
        KIMI,
        a_condition("RoutingReady", "False", "InvalidURL", INVALID_URL),
        "fix the manifest as the message says and apply it again",
    ),
    (
        QWEN,
        a_condition("ReplicasScheduled", "False", "InvalidNodeSelector", "bad CEL"),
        "fix the CEL expression; ",
    ),
    (
        OSLO,
        a_condition("ClusterReady", "False", "ProviderNotSupported", "no GKE"),
        "this source cannot be provisioned yet; ",
    ),
]


@pytest.mark.parametrize(
    ("target", "failure", "next_step"),
    FINAL_FAILURES,
    ids=[row[1]["reason"] for row in FINAL_FAILURES],
)
def test_a_failure_that_does_not_pass_by_itself_ends_the_wait(
    monkeypatch: pytest.MonkeyPatch,
    target: Target,
    failure: dict[str, Any],
    next_step: str,
) -> None:
    with pytest.raises(CommandFailed) as failed:
        waited(
            monkeypatch,
            Goal(target, 1),
            a_tree(failure, a_condition("Ready", "False", "Unavailable")),
        )
    assert exit_code_of(failed.value) == ExitCode.FAILED
    assert failed.value.message == f"{target.title} cannot become Ready with its spec"
    assert failed.value.details == (
        f"{failure['type']}: {failure['reason']} ({failure['message']})",
    )
    assert failed.value.next_step.startswith(next_step)


@pytest.mark.parametrize(
    ("observed", "of"),
    [(1, 1), (1, 2), (2, 1)],
    ids=["not observed yet", "observed in part", "a condition that stays"],
)
def test_conditions_of_the_previous_spec_do_not_end_the_wait(
    monkeypatch: pytest.MonkeyPatch, observed: int, of: int
) -> None:
    before = a_condition(
        "RoutingReady", "False", "InvalidURL", INVALID_URL, observedGeneration=of
    )
    corrected = a_tree(READY, generation=2, observed=2)
    assert waited(
        monkeypatch,
        Goal(KIMI, 2),
        a_tree(before, generation=2, observed=observed),
        corrected,
    ) == [corrected]


def test_a_failure_that_may_pass_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    full = a_condition(
        "ReplicasScheduled",
        "False",
        "InsufficientCapacity",
        "0/2 clusters are available",
    )
    with pytest.raises(TimedOut):
        waited(
            monkeypatch,
            Goal(QWEN, 1),
            a_tree(full, a_condition("Ready", "False", "Creating")),
            seconds=0,
        )


def test_an_apply_that_waits_ends_with_the_unmet_parts_of_the_spec(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    retries = a_condition("RetriesReady", "False", "MiddlewareUnavailable", "do this")
    timeouts = a_condition("TimeoutsReady", "False", "TimeoutsUnsupported", "do that")
    monkeypatch.setattr(waiting, "_POLL_SECONDS", 0.001)
    tree = a_tree(READY, retries, timeouts)
    asyncio.run(
        until_applied_are_ready(
            cast("ControlPlane", Shown(tree)), [ApplyResult(CHAT, "r", tree)], 60
        )
    )
    assert [
        line
        for line in capsys.readouterr().err.splitlines()
        if line.startswith("warning: ")
    ] == [
        "warning: ModelService ml/chat: RetriesReady: MiddlewareUnavailable (do this)",
        "warning: ModelService ml/chat: TimeoutsReady: TimeoutsUnsupported (do that)",
    ]


@pytest.mark.parametrize("status", ["True", "Unknown", ""])
def test_a_wait_warns_of_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: str
) -> None:
    conditions = [
        a_condition(kind, status, "Any")
        for kind in ("RetriesReady", "TimeoutsReady")
        if status
    ]
    waited(
        monkeypatch,
        Goal(CHAT, 1),
        a_tree(READY, *conditions, a_condition("Other", "False", "Any")),
    )
    assert "warning" not in capsys.readouterr().err


def placed(*phases: str) -> list[dict[str, Any]]:
    return [
        {"replica": f"qwen-{at}", "cluster": "eu", "phase": phase}
        for at, phase in enumerate(phases)
    ]


def test_a_scale_down_is_waited_for_until_the_replicas_that_leave_are_gone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leaving = a_tree(READY, replicas=1, placements=placed("Ready", "Terminating"))
    gone = a_tree(READY, replicas=1, placements=placed("Ready"))
    assert waited(monkeypatch, Goal(QWEN, 1, exact=True), leaving, leaving, gone) == [
        gone
    ]
    assert (
        "replicas: 2 exist, 1 wanted; not gone yet: qwen-1 on eu"
        in capsys.readouterr().err
    )
    # `apply --wait` waits for Ready.
    assert waited(monkeypatch, Goal(QWEN, 1), leaving, gone) == [leaving]


def test_a_scale_to_zero_is_waited_for_until_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    off = a_condition("Ready", "False", SCALED_TO_ZERO)
    leaving, gone = (
        a_tree(off, replicas=0, placements=each) for each in (placed("Terminating"), [])
    )
    assert waited(monkeypatch, Goal(QWEN, 1, exact=True), leaving, gone) == [gone]


def test_a_wait_for_replicas_that_do_not_leave_names_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leaving = a_tree(READY, replicas=1, placements=placed("Ready", "Terminating"))
    with pytest.raises(TimedOut) as failure:
        waited(monkeypatch, Goal(QWEN, 1, exact=True), leaving, seconds=0)
    assert failure.value.details == (
        "ModelDeployment ml/qwen: replicas: 2 exist, 1 wanted; not gone yet: qwen-1 on eu",
    )
