"""`modelplane drain`, `uncordon` and `retry`: what they change in a cluster, and what they refuse."""

from typing import Any

import pytest

from client.commands.change.drain import with_maintenance, with_taints, without_maintenance
from tests.client.conftest import Cli

OURS = {"key": "modelplane.ai/maintenance", "effect": "NoExecute"}
SOFT = {"key": "modelplane.ai/maintenance", "effect": "NoSchedule"}
THEIRS = {"key": "team", "value": "a", "effect": "NoSchedule"}

DRAINS = [
    ("ruling-G16 a cluster without taints gets one", [], [OURS]),
    ("ruling-G16 other taints stay", [THEIRS], [THEIRS, OURS]),
    ("ruling-G16 a drained cluster stays as it is", [OURS, THEIRS], [OURS, THEIRS]),
    ("ruling-G16 a softer one of the same key is no drain", [SOFT], [SOFT, OURS]),
]
RETURNS = [
    ("ruling-G16 the taint goes", [OURS], []),
    ("ruling-G16 other taints stay", [THEIRS, OURS], [THEIRS]),
    ("ruling-G16 whatever its effect", [SOFT, OURS], []),
    ("ruling-G16 a cluster in use stays as it is", [THEIRS], [THEIRS]),
]


@pytest.mark.parametrize(("before", "after"), [row[1:] for row in DRAINS], ids=[row[0] for row in DRAINS])
def test_a_drain_adds_one_taint(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
    assert with_maintenance(before) == after


@pytest.mark.parametrize(("before", "after"), [row[1:] for row in RETURNS], ids=[row[0] for row in RETURNS])
def test_uncordon_removes_that_taint(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
    assert without_maintenance(before) == after


def a_described_cluster(taints: list[dict[str, Any]] | None) -> dict[str, Any]:
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceCluster",
        "metadata": {
            "name": "oslo",
            "uid": "u",
            "generation": 3,
            "resourceVersion": "9",
            "labels": {"tier": "prod"},
            "annotations": {"a": "b"},
        },
        "spec": {"cluster": {"source": "Existing"}, "nodePools": [], **({} if taints is None else {"taints": taints})},
        "status": {"phase": "Ready"},
        "appliedRequestIds": ["x"],
    }


def test_everything_else_of_the_cluster_is_sent_as_it_was() -> None:
    assert with_taints(a_described_cluster(None), with_maintenance) == {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceCluster",
        "metadata": {"name": "oslo", "labels": {"tier": "prod"}, "annotations": {"a": "b"}},
        "spec": {"cluster": {"source": "Existing"}, "nodePools": [], "taints": [OURS]},
    }


def test_the_last_taint_takes_its_list_with_it() -> None:
    manifest = with_taints(a_described_cluster([OURS]), without_maintenance)
    assert manifest is not None
    assert "taints" not in manifest["spec"]


@pytest.mark.parametrize("taints", [[OURS], [OURS, THEIRS]])
def test_a_cluster_that_is_drained_already_is_not_sent_again(taints: list[dict[str, Any]]) -> None:
    assert with_taints(a_described_cluster(taints), with_maintenance) is None


BAD_USAGE = [
    ("api-G11 a drain of a deployment", ["drain", "md/qwen"], 2, "is no InferenceCluster"),
    ("api-G11 a drain of nothing", ["drain"], 2, "Missing argument"),
    ("api-G11 uncordon of a kind", ["uncordon", "ic/"], 2, "does not name an object"),
    ("api-G11 a retry of a whole kind", ["retry", "md"], 2, "which ModelDeployment?"),
    ("api-G11 a drain without Temporal", ["drain", "oslo"], 6, "does not answer"),
    ("api-G11 an uncordon without Temporal", ["uncordon", "ic/oslo"], 6, "does not answer"),
    ("api-G11 a retry without Temporal", ["retry", "md/qwen"], 6, "does not answer"),
]


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(("words", "code", "say"), [row[1:] for row in BAD_USAGE], ids=[row[0] for row in BAD_USAGE])
def test_what_cannot_be_done_is_reported(cli: Cli, words: list[str], code: int, say: str) -> None:
    result = cli(*words)
    assert (result.code, result.out) == (code, "")
    assert say in " ".join(result.err.split())
