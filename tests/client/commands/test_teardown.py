"""The shown teardown: its steps in `describe`, and the leftovers of a forced one."""

from typing import Any

import pytest

from api_types.messages.cluster_work import RemainingObject
from client.commands.inspect.describe import teardown
from client.follow.left_behind import left_behind
from tests.client.conftest import Cli
from workflows.entity.failures import Failure
from workflows.model_replica.teardown_progress import TeardownProgress

HELD: dict[str, Any] = {
    "id": "apps/v1/Deployment/ml/qwen-main",
    "why": "finalizer example.com/hold",
}


def manifest(progress: TeardownProgress) -> dict[str, Any]:
    return {"status": {"teardown": progress.shown()}}


def test_describe_shows_every_step_and_the_blocker_of_the_current_one() -> None:
    progress = TeardownProgress(
        number=4, outcomes={"1": "done", "2": "done", "3": "skipped"}, attempts=1
    )
    progress.waiting = [RemainingObject(**HELD)]
    lines = teardown(manifest(progress))
    assert lines[:6] == [
        "STEP   WHAT                                                STATE     WAITS FOR",
        "1      withdraw the endpoint                               done      <none>",
        "2      drain                                               done      <none>",
        "3      delete the route                                    skipped   <none>",
        (
            "4      delete the pool or Service                          waiting   "
            "apps/v1/Deployment/ml/qwen-main (finalizer example.com/hold)"
        ),
        "5      delete the endpoint picker                          pending   <none>",
    ]
    assert len(lines) == 13


def test_describe_shows_why_a_step_is_retried() -> None:
    lines = teardown(
        manifest(
            TeardownProgress(
                number=3,
                attempts=2,
                failure=Failure("ClusterUnreachable", "cluster eu: no answer"),
            )
        )
    )
    assert lines[3].endswith("waiting   ClusterUnreachable: cluster eu: no answer")


def test_an_object_that_is_not_being_deleted_has_no_steps() -> None:
    assert teardown({"status": {}}) == []


def test_the_help_of_force_says_when_it_skips_more_than_one_step(cli: Cli) -> None:
    text = " ".join(cli("delete", "--help").out.split())
    assert "Skip the current teardown step; " in text
    assert (
        "for a ModelReplica whose cluster is not connected, or whose "
        "InferenceCluster was deleted, all its steps on that cluster" in text
    )


LEFT = [
    {
        "kind": "Pod",
        "name": "b-0",
        "namespace": "ml",
        "location": "us",
        "reason": "forced",
    },
    {"kind": "ClusterRole", "name": "epp", "location": "eu", "reason": "forced"},
    {
        "kind": "Deployment",
        "name": "a",
        "namespace": "ml",
        "location": "eu",
        "reason": "forced; finalizer x",
    },
]


@pytest.mark.parametrize(
    ("story", "tree", "lines"),
    [
        ("nothing", {"status": {}}, ["left nothing behind"]),
        (
            "no worker answers",
            None,
            ["may have left objects behind: no worker answers for it"],
        ),
        (
            "objects by cluster",
            {"status": {"leftBehind": LEFT}},
            [
                "left 3 objects behind:",
                "  WHERE   KIND          NAMESPACE   NAME   WHY",
                "  eu      ClusterRole   <none>      epp    forced",
                "  eu      Deployment    ml          a      forced; finalizer x",
                "  us      Pod           ml          b-0    forced",
            ],
        ),
        (
            "one object",
            {"status": {"leftBehind": LEFT[:1]}},
            ["left 1 object behind:"],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_forced_deletion_lists_its_leftovers(
    story: str, tree: dict[str, Any] | None, lines: list[str]
) -> None:
    assert left_behind(tree)[: len(lines)] == lines, story
