"""`modelplane plan`: offline plans from files, and the parsing of options."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from client.output.plan_text import decision_lines, plan_lines
from client.planning.proposed_changes import ProposedChanges
from fleet_client.placement.live_fleet import LiveFleet
from tests.client.conftest import Cli
from tests.client.fleetfiles import (
    Tree,
    a_class,
    a_cluster,
    a_deployment,
    a_file,
    a_list,
    a_replica,
)
from tests.client.planning.test_live_plan import a_live, published, stored

NOT_READY = {
    "conditions": [{"type": "Ready", "status": "False", "reason": "Installing"}]
}


def planned(
    cli: Cli, folder: Path, *trees: Tree, words: tuple[str, ...] = ()
) -> list[Any]:
    """Plan trees offline, and return the decisions."""
    result = cli(
        "plan", "--offline", "-f", a_file(folder, *trees), "-o", "json", *words
    )
    assert result.code == 0, result.err
    decisions: list[Any] = json.loads(result.out)["decisions"]
    return decisions


def places(decision: Any) -> list[tuple[str, str]]:
    return [
        (placement["action"], placement["cluster"])
        for placement in decision["placements"]
    ]


OFFLINE = [
    (
        "spreads over clusters",
        [a_cluster("eu"), a_cluster("us"), a_deployment()],
        [("Create", "eu"), ("Create", "us")],
        0,
    ),
    (
        "uses the Ready condition of a status",
        [a_cluster("eu"), a_cluster("us", status=NOT_READY), a_deployment()],
        [("Create", "eu")] * 2,
        0,
    ),
    (
        "an address that is written and empty is no gateway",
        [
            a_cluster("eu"),
            a_cluster("us", status={"gateway": {"address": ""}}),
            a_deployment(),
        ],
        [("Create", "eu")] * 2,
        0,
    ),
    (
        "keeps placed replicas",
        [a_cluster("eu"), a_cluster("us"), a_replica("chat-old", "us"), a_deployment()],
        [("Create", "eu"), ("Keep", "us")],
        0,
    ),
    (
        "a replica that is being deleted still holds its node",
        [
            a_cluster("eu", nodes=1),
            a_replica(
                "other-1", "eu", "other", deletionTimestamp="2026-03-01T12:00:00Z"
            ),
            a_deployment(replicas=1),
        ],
        [],
        1,
    ),
    ("a fleet without clusters places nothing", [a_deployment(replicas=3)], [], 3),
]


@pytest.mark.parametrize(
    ("trees", "want", "short"),
    [row[1:] for row in OFFLINE],
    ids=[row[0] for row in OFFLINE],
)
def test_files_alone_say_where_replicas_go(
    cli: Cli, tmp_path: Path, trees: list[Tree], want: list[tuple[str, str]], short: int
) -> None:
    (decision,) = planned(cli, tmp_path, a_class(), *trees)
    assert (places(decision), decision["shortfall"]) == (want, short)


BEING_DELETED = a_deployment("old", replicas=2)
BEING_DELETED["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"


def test_a_deployment_being_deleted_requests_no_replicas_and_its_replicas_keep_their_place(
    cli: Cli, tmp_path: Path
) -> None:
    trees = [
        a_class(),
        a_cluster("eu", nodes=2),
        a_replica("old-1", "eu", "old"),
        BEING_DELETED,
        a_deployment(),
    ]
    (decision,) = planned(cli, tmp_path, *trees)
    assert (decision["name"], places(decision), decision["shortfall"]) == (
        "chat",
        [("Create", "eu")],
        1,
    )


def test_the_steps_of_a_plan_leave_out_a_deployment_that_is_being_deleted(
    cli: Cli, tmp_path: Path
) -> None:
    trees = a_file(
        tmp_path, a_class(), a_cluster("eu", nodes=4), BEING_DELETED, a_deployment()
    )
    result = cli("plan", "--offline", "-o", "wide", "-f", trees)
    steps = result.out.partition("Steps:")[2]
    assert "chat-" in steps
    assert "old-" not in steps


def test_a_question_does_not_count_a_deployment_that_is_being_deleted(
    cli: Cli, tmp_path: Path
) -> None:
    trees = a_file(
        tmp_path, a_class(), a_cluster("eu", nodes=4), BEING_DELETED, a_deployment()
    )
    assert (
        "headroom 4"
        in cli(
            "plan", "--offline", "-n", "ml", "--headroom", "md/chat", "-f", trees
        ).out
    )


def test_the_help_says_what_compat_does(cli: Cli) -> None:
    text = " ".join(cli("plan", "--help").out.split())
    assert (
        "`reference` places by the rules of the original Modelplane scheduler, "
        "its known errors included, to compare the two" in text
    )


@pytest.mark.slow
def test_the_tree_for_machines_leaves_nothing_out(cli: Cli, tmp_path: Path) -> None:
    (decision,) = planned(
        cli, tmp_path, a_class(), a_cluster("eu", nodes=1), a_deployment(replicas=1)
    )
    name = decision["placements"][0]["replica"]
    assert decision == {
        "namespace": "ml",
        "name": "chat",
        "desired": 1,
        "shortfall": 0,
        "message": decision["message"],
        "warnings": [],
        "suggestions": [],
        "placements": [
            {
                "replica": name,
                "cluster": "eu",
                "index": 0,
                "action": "Create",
                "engines": [{"name": "main", "pool": "h200", "nodes": 1}],
                "reason": {
                    "text": "placed here: no other cluster fits one",
                    "nextBest": "",
                    "score": "",
                    "value": 0,
                    "nextBestValue": 0,
                },
            }
        ],
        "evictions": [],
        "clusters": {
            "eu": {
                "reason": "InsufficientNodes",
                "detail": decision["clusters"]["eu"]["detail"],
                "needs": [
                    {
                        "pool": "h200",
                        "nodes": 1,
                        "free": 0,
                        "engines": [{"name": "main", "nodes": 1}],
                    }
                ],
                "pools": {
                    "h200": {
                        "reason": "InsufficientNodes",
                        "detail": decision["clusters"]["eu"]["pools"]["h200"]["detail"],
                        "selectors": [],
                    }
                },
            }
        },
        "clustersAfter": "",
    }


def test_deployments_are_decided_by_priority_and_shown_as_written(
    cli: Cli, tmp_path: Path
) -> None:
    """Deployments are ordered by priority, then by document order, also in the output."""
    policy = tmp_path / "policy.yaml"
    policy.write_text("priorityClasses: {gold: 100}\n")
    gold = a_deployment("gold", 1, spec={"scheduling": {"priorityClassName": "gold"}})
    decisions = planned(
        cli,
        tmp_path,
        a_class(),
        a_cluster("eu", nodes=1),
        a_deployment("early", 1),
        gold,
        words=("--policy", str(policy)),
    )
    assert [(decision["name"], decision["shortfall"]) for decision in decisions] == [
        ("early", 1),
        ("gold", 0),
    ]


def test_a_shortfall_is_shown_and_fails_only_on_request(
    cli: Cli, tmp_path: Path
) -> None:
    file = a_file(
        tmp_path, a_class(), a_cluster("eu", nodes=1), a_deployment(replicas=3)
    )
    result = cli("plan", "--offline", "-f", file)
    title, header, row, why = result.out.splitlines()
    assert (result.code, title) == (
        0,
        "ModelDeployment ml/chat: 1 of 3 replicas placed",
    )
    assert header.split() == ["ACTION", "REPLICA", "CLUSTER", "POOLS", "REASON"]
    assert row.split()[0] == "Create"
    assert (
        "0/1 clusters are available: 1 had too few free nodes for engine main "
        "(best: needs 1, 0 free on eu/h200)." in why
    )
    failed = cli("plan", "--offline", "-f", file, "--fail-on-shortfall")
    assert (failed.code, failed.out) == (1, result.out)
    assert "ModelDeployment ml/chat: 1 of 3 replicas scheduled" in failed.err


@pytest.mark.parametrize(
    "words", [(), ("-o", "json"), ("-n", "ml", "--headroom", "md/chat")], ids=" ".join
)
def test_a_plan_without_clusters_says_how_to_add_them(
    cli: Cli, tmp_path: Path, words: tuple[str, ...]
) -> None:
    warning = (
        "warning: no InferenceCluster was given, so no replica can be placed; add "
        "clusters and their classes with -f\n"
    )
    without = cli(
        "plan", "--offline", "-f", a_file(tmp_path, a_class(), a_deployment()), *words
    )
    assert (without.code, without.err) == (0, warning)
    given = cli(
        "plan",
        "--offline",
        "-f",
        a_file(tmp_path, a_class(), a_cluster("eu"), a_deployment()),
        *words,
    )
    assert (given.code, given.err) == (0, "")


def test_an_unknown_priority_class_is_a_warning(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("priorityClasses:\n  high: 100\n")
    wants = a_deployment()
    wants["spec"]["scheduling"] = {"priorityClassName": "hight"}
    file = a_file(tmp_path, a_class(), a_cluster("eu"), wants)
    result = cli(
        "plan", "--offline", "--policy", str(tmp_path / "policy.yaml"), "-f", file
    )
    assert (result.code, result.err) == (
        0,
        (
            "warning: ModelDeployment ml/chat: spec.scheduling.priorityClassName: "
            "the fleet's policy has no priority class hight, so the priority is 0; nearest: high\n"
        ),
    )


def test_wide_shows_each_pool_and_the_steps(cli: Cli, tmp_path: Path) -> None:
    file = a_file(
        tmp_path, a_class(), a_cluster("eu", nodes=1), a_deployment(replicas=2)
    )
    lines = [
        line.split()
        for line in cli("plan", "--offline", "-f", file, "-o", "wide").out.splitlines()
    ]
    assert ["CLUSTER", "POOL", "REASON", "DETAIL"] in lines
    assert ["eu", "h200", "InsufficientNodes"] in [line[:3] for line in lines]
    assert ["1.", "+"] in [line[:2] for line in lines]


def test_files_come_from_folders_and_standard_input_too(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "fleet"
    folder.mkdir()
    a_file(folder, a_class(), name="classes.json")
    a_file(folder, a_cluster("eu"), name="clusters.json")
    monkeypatch.setattr("sys.stdin", io.StringIO(a_list(a_deployment(replicas=1))))
    result = cli("plan", "--offline", "-f", str(folder), "-f", "-", "-o", "yaml")
    assert (result.code, "action: Create" in result.out) == (0, True)


@pytest.mark.usefixtures("nowhere")
def test_offline_connects_to_nothing(cli: Cli, tmp_path: Path) -> None:
    assert (
        cli(
            "plan",
            "--offline",
            "-f",
            a_file(tmp_path, a_class(), a_cluster("eu"), a_deployment()),
        ).code
        == 0
    )


BAD_USAGE = [
    ("nothing to plan", ["plan"], "nothing to plan"),
    ("offline without files", ["plan", "--offline"], "nothing to read"),
    (
        "a drain offline",
        ["plan", "--offline", "--drain", "eu"],
        "apply to the live fleet",
    ),
    (
        "another's decisions on the live fleet",
        ["plan", "--drain", "eu", "--compat", "reference"],
        "--compat needs --offline",
    ),
    (
        "a pool without its cluster",
        ["plan", "--delete-pool", "h200"],
        "--delete-pool h200: write CLUSTER/POOL",
    ),
    (
        "a scale without a number",
        ["plan", "--scale", "md/chat"],
        "--scale md/chat: not an object and a count; write md/NAME=REPLICAS",
    ),
    (
        "a scale of a cluster",
        ["plan", "--scale", "ic/eu=2"],
        "only a ModelDeployment can be scaled",
    ),
    (
        "a scale out of bounds",
        ["plan", "--scale", "md/chat=1001"],
        "must be between 0 and 1000, got 1001",
    ),
    (
        "a policy that is not there",
        ["plan", "--policy", "/nope.yaml", "--drain", "eu"],
        "cannot read /nope.yaml",
    ),
    (
        "names are no form of a plan",
        ["plan", "--drain", "eu", "-o", "name"],
        "invalid value for '--output'",
    ),
]


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    ("story", "words", "say"), BAD_USAGE, ids=[row[0] for row in BAD_USAGE]
)
def test_bad_usage_is_rejected_before_any_request(
    cli: Cli, story: str, words: list[str], say: str
) -> None:
    result = cli(*words)
    assert (result.code, result.out) == (2, ""), story
    assert say in " ".join(result.err.split())


def test_the_options_of_a_live_plan_are_the_changes_that_it_plans(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposed: list[ProposedChanges] = []

    async def read(changes: ProposedChanges) -> LiveFleet:
        proposed.append(changes)
        return a_live(
            a_class(),
            published("eu", ("h200", 1), ("spare", 2)),
            stored(a_deployment(replicas=1)),
            a_replica("chat-e", "eu"),
        )

    monkeypatch.setattr("client.commands.preview.plan._live", read)
    pool = cli("plan", "--delete-pool", "eu/h200", "-o", "json")
    assert pool.code == 0, pool.err
    (decision,) = json.loads(pool.out)["decisions"]
    (placement,) = decision["placements"]
    assert placement["engines"] == [{"name": "main", "pool": "spare", "nodes": 1}]

    pools = ["--delete-pool", "eu/spare", "--delete-pool", "eu/h200"]
    assert (
        cli("plan", *pools, "--drain", "eu", "--scale", "md/chat=3", "-n", "ml").code
        == 0
    )
    both, scales = (("eu", "spare"), ("eu", "h200")), {("ml", "chat"): 3}
    assert proposed == [
        ProposedChanges([], pools=(("eu", "h200"),)),
        ProposedChanges([], drained=("eu",), pools=both, scales=scales),
    ]


def test_all_mistakes_of_a_policy_are_reported_at_once(
    cli: Cli, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("accounting: nodes\nprofil: dense\n")
    result = cli(
        "plan",
        "--offline",
        "-f",
        a_file(tmp_path, a_deployment()),
        "--policy",
        str(policy),
    )
    assert result.code == 2
    assert "profil: unknown field, did you mean profile?" in result.err
    assert "accounting: must be one of" in result.err


def test_a_status_that_is_none_is_refused(cli: Cli, tmp_path: Path) -> None:
    bad = a_cluster("eu", status={"conditions": "Ready"})
    result = cli(
        "plan", "--offline", "-f", a_file(tmp_path, a_class(), bad, a_deployment())
    )
    assert result.code == 2
    assert "InferenceCluster eu: status.conditions" in result.err


def test_a_class_is_read_as_it_was_exported(cli: Cli, tmp_path: Path) -> None:
    exported = {
        **a_class(),
        "status": {
            "clusters": ["eu"],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    (decision,) = planned(cli, tmp_path, exported, a_cluster("eu"), a_deployment())
    assert decision["shortfall"] == 0


def test_evictions_nodes_and_steps_are_shown() -> None:
    decision = {
        "namespace": "ml",
        "name": "chat",
        "desired": 1,
        "shortfall": 0,
        "message": "",
        "placements": [],
        "evictions": [{"replica": "chat-1", "cluster": "eu", "reason": "Drained"}],
        "clusters": {},
    }
    assert [line.split() for line in decision_lines(decision, wide=False)][2] == [
        "Evict",
        "chat-1",
        "eu",
        "-",
        "Drained",
    ]
    pool = {
        "cluster": "eu",
        "pool": "h200",
        "nodesBefore": 1,
        "nodesAfter": 0,
        "costMilliBefore": 12500,
        "costMilliAfter": -1,
    }
    lines = plan_lines(
        {"decisions": [], "pools": [pool], "steps": [["- eu/chat-1 Drained"]]},
        wide=True,
    )
    assert lines[2].split() == ["eu", "h200", "1", "0", "12.50", "unknown"]
    assert lines[-1].split() == ["1.", "-", "eu/chat-1", "Drained"]


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("command", [["plan", "--offline"], ["render"]], ids=" ".join)
@pytest.mark.parametrize(
    ("status", "say"),
    [
        ({"gateway": {"address": ["a"]}}, "status.gateway.address: must be text"),
        (
            {"gpuPools": [{"name": "h200", "nodes": [{}]}]},
            "status.gpuPools[0].nodes: must be a whole number",
        ),
    ],
    ids=["an address", "nodes"],
)
def test_a_status_with_a_value_of_another_type_is_refused(
    cli: Cli, tmp_path: Path, command: list[str], status: Tree, say: str
) -> None:
    result = cli(
        *command,
        "-f",
        a_file(tmp_path, a_class(), a_cluster("eu", status=status), a_deployment()),
    )
    assert result.code == 2
    assert f"InferenceCluster eu: {say}" in result.err
