"""`modelplane drain`, `cordon`, `uncordon` and `retry`: refusals, and the replicas that
a drain may lose.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from api_types.resources.kinds import BY_KIND
from api_types.taints import CORDON, MAINTENANCE
from client.commands.change import drain
from client.failures import ExitCode, exit_code_of
from client.follow import drain_check
from client.follow.drain_check import DRAIN, EVICT, Draining, check_loss
from fleet_client.errors import CommandFailed, NoAnswer
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree
from fleet_client.requests import Requested
from fleet_client.temporal.control_plane import ControlPlane
from tests.client.conftest import Cli

BAD_USAGE = [
    (
        "a drain of a deployment",
        ["drain", "md/qwen"],
        2,
        "is not an InferenceCluster",
    ),
    ("a drain of nothing", ["drain"], 2, "missing argument"),
    ("uncordon of a kind", ["uncordon", "ic/"], 2, "does not name an object"),
    ("a retry of a whole kind", ["retry", "md"], 2, "which ModelDeployment?"),
    ("a drain without Temporal", ["drain", "oslo"], 6, "does not answer"),
    (
        "a cordon of a deployment",
        ["cordon", "md/qwen"],
        2,
        "is not an InferenceCluster",
    ),
    ("a cordon without Temporal", ["cordon", "oslo"], 6, "does not answer"),
    (
        "an uncordon without Temporal",
        ["uncordon", "ic/oslo"],
        6,
        "does not answer",
    ),
    (
        "a finalizer of a deployment",
        [
            "force-finalizer",
            "md/qwen",
            "Service/a/b",
            "example.com/x",
            "--reason",
            "gone",
        ],
        2,
        "has no stack",
    ),
    (
        "a finalizer without a reason",
        ["force-finalizer", "ic/oslo", "Service/a/b", "example.com/x", "--reason", " "],
        2,
        "give a reason",
    ),
    (
        "a finalizer without Temporal",
        [
            "force-finalizer",
            "ic/oslo",
            "Service/a/b",
            "example.com/x",
            "--reason",
            "gone",
        ],
        6,
        "does not answer",
    ),
    ("a retry without Temporal", ["retry", "md/qwen"], 6, "does not answer"),
]


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    ("words", "code", "say"),
    [row[1:] for row in BAD_USAGE],
    ids=[row[0] for row in BAD_USAGE],
)
def test_an_impossible_change_is_reported(
    cli: Cli, words: list[str], code: int, say: str
) -> None:
    result = cli(*words)
    assert (result.code, result.out) == (code, "")
    assert say in " ".join(result.err.split())


OSLO = Target.of(BY_KIND["InferenceCluster"], None, "oslo")
MOVE = {
    "namespace": "ml",
    "name": "qwen",
    "leaves": ["qwen-1", "qwen-2"],
    "comes": [],
    "missing": 2,
    "message": "1 had too few free nodes",
}
LOST: Tree = {
    "question": "can-drain",
    "possible": False,
    "cluster": "oslo",
    "moves": [MOVE],
    "stays": [],
}
WARNED = """\
warning: some replicas of InferenceCluster oslo find no other place
  DEPLOYMENT   EVICTED   PLACED ON   SHORTFALL
  ml/qwen      2         -           1 had too few free nodes
"""


@pytest.mark.parametrize("command", ["drain", "cordon", "uncordon"])
@pytest.mark.parametrize(
    ("words", "reason"),
    [([], ""), (["--reason", "new racks"], "new racks")],
    ids=["none", "given"],
)
def test_the_reason_that_the_user_gives_is_sent(
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    words: list[str],
    reason: str,
) -> None:
    sent: list[str] = []

    @asynccontextmanager
    async def connected(*_given: object) -> AsyncIterator[None]:
        yield

    async def no_loss(*_given: object, **_options: object) -> None:
        pass

    async def changed(
        _plane: None, target: Target, _spec: object, *, reason: str
    ) -> Requested:
        sent.append(reason)
        return Requested(target, "")

    monkeypatch.setattr(drain, "control_plane", connected)
    monkeypatch.setattr(drain, "fleet_objects", connected)
    monkeypatch.setattr(drain, "check_loss", no_loss)
    monkeypatch.setattr(drain, "change", changed)
    assert cli(command, "oslo", *words).code == ExitCode.DONE
    assert sent == [reason]


class Plane:
    """A control plane with a cluster that has these taints."""

    def __init__(self, *taints: dict[str, str]) -> None:
        self.taints = list(taints)

    async def describe(self, target: Target) -> Tree:
        assert target == OSLO
        return {"spec": {"taints": self.taints}}


def checked(
    plane: Plane, draining: Draining = DRAIN, *, allow_loss: bool = False
) -> None:
    asyncio.run(
        check_loss(cast("ControlPlane", plane), [OSLO], draining, allow_loss=allow_loss)
    )


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The plan of the drain, or the error of making one."""
    said: list[Any] = []

    async def made(
        _plane: ControlPlane, _cluster: str, _others: tuple[str, ...]
    ) -> Tree:
        if isinstance(said[0], Exception):
            raise said[0]
        tree: Tree = said[0]
        return tree

    monkeypatch.setattr(drain_check, "_plan", made)
    monkeypatch.setattr(drain_check, "_PLAN_SECONDS", 0.0)
    return said


@pytest.mark.parametrize("taints", [[], [CORDON]], ids=["in use", "cordoned"])
def test_a_drain_that_loses_replicas_is_refused_and_lists_them(
    plan: list[Any], taints: list[dict[str, str]]
) -> None:
    plan.append(LOST)
    with pytest.raises(
        CommandFailed, match="InferenceCluster oslo was not drained"
    ) as failure:
        checked(Plane(*taints))
    assert exit_code_of(failure.value) == ExitCode.FAILED
    assert failure.value.details[1].split()[:2] == ["ml/qwen", "2"]
    assert "`modelplane drain oslo --allow-loss`" in failure.value.next_step


def test_a_deletion_that_loses_replicas_is_refused_in_the_same_words(
    plan: list[Any],
) -> None:
    plan.append(LOST)
    with pytest.raises(
        CommandFailed,
        match="InferenceCluster oslo was not deleted: some replicas would find no other place",
    ) as failure:
        checked(Plane(), EVICT)
    assert "`modelplane delete ic/oslo --evict --allow-loss`" in failure.value.next_step


def test_clusters_drained_together_do_not_receive_each_others_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned: list[tuple[str, tuple[str, ...]]] = []

    async def made(_plane: ControlPlane, cluster: str, others: tuple[str, ...]) -> Tree:
        planned.append((cluster, others))
        return {"possible": True}

    class AnyPlane:
        async def describe(self, _target: Target) -> Tree:
            return {"spec": {}}

    monkeypatch.setattr(drain_check, "_plan", made)
    targets = [
        Target.of(BY_KIND["InferenceCluster"], None, name)
        for name in ("oslo", "bergen")
    ]
    asyncio.run(
        check_loss(cast("ControlPlane", AnyPlane()), targets, EVICT, allow_loss=False)
    )
    assert planned == [("oslo", ("bergen",)), ("bergen", ("oslo",))]


def test_with_allow_loss_it_is_a_warning(
    plan: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    plan.append(LOST)
    checked(Plane(), allow_loss=True)
    assert capsys.readouterr().err == WARNED


def test_a_drain_without_losses_prints_no_warning(
    plan: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    plan.append(LOST | {"possible": True})
    checked(Plane())
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("plan")
def test_a_cluster_that_is_drained_already_needs_no_plan() -> None:
    checked(Plane(MAINTENANCE))


def test_a_fleet_that_cannot_be_read_is_not_drained_unless_replicas_may_be_lost(
    plan: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    plan.append(NoAnswer("no worker answers", next_step="none"))
    with pytest.raises(NoAnswer):
        checked(Plane())
    checked(Plane(), allow_loss=True)
    assert (
        capsys.readouterr().err
        == "warning: the replicas that the drain would lose are not known: no worker answers\n"
    )
