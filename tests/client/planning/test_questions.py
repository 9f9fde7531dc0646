"""The questions of `modelplane plan`: headroom, the cheapest cluster to add, and the
check before a drain.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from api_types.clock import now_ms
from client.planning.live_plan import question_context
from client.planning.proposed_changes import ProposedChanges
from client.planning.questions import CAN_DRAIN, HEADROOM, Question, answer
from fleet_client.errors import NotFound
from scheduler.fleet.snapshots import snapshot
from scheduler.model.policy import Quota, SchedulerOptions
from tests.client.conftest import Cli
from tests.client.fleetfiles import (
    Tree,
    a_class,
    a_cluster,
    a_deployment,
    a_file,
    a_replica,
)
from tests.client.planning.test_live_plan import CHAT, two_sites

PRICE = "modelplane.ai/price-per-node-hour"
TOLERANT: Tree = {"tolerations": [{"operator": "Exists"}]}


def priced(name: str, price: str = "", memory: str = "141Gi") -> Tree:
    made = a_class(name)
    made["spec"]["devices"][0]["capacity"]["memory"]["value"] = memory
    made["metadata"]["annotations"] = {PRICE: price} if price else {}
    return made


def of_class(name: str, class_name: str, nodes: int = 2) -> Tree:
    made = a_cluster(name, nodes)
    made["spec"]["nodePools"][0]["className"] = class_name
    return made


def asked(cli: Cli, folder: Path, *trees: Tree, words: tuple[str, ...]) -> Any:
    """Ask offline, and return the answer."""
    result = cli(
        "plan",
        "--offline",
        "-f",
        a_file(folder, *trees),
        "-n",
        "ml",
        "-o",
        "json",
        *words,
    )
    assert result.code == 0, result.err
    return json.loads(result.out)


# Headroom


def test_headroom_counts_replicas_beyond_all_existing_requests(
    cli: Cli, tmp_path: Path
) -> None:
    """Four nodes, one of them for another deployment."""
    fleet = [
        a_class(),
        a_cluster("eu"),
        a_cluster("us"),
        a_deployment("other", 1),
        a_deployment(replicas=2),
    ]
    found = asked(cli, tmp_path, *fleet, words=("--headroom", "md/chat"))
    assert (found["headroom"], found["wanted"], found["enough"]) == (3, 2, True)
    assert sum(found["clusters"].values()) == 3
    assert "0/2 clusters are available" in found["message"]


def test_headroom_reports_why_the_next_replica_does_not_fit(
    cli: Cli, tmp_path: Path
) -> None:
    file = a_file(
        tmp_path, a_class(), a_cluster("eu", nodes=1), a_deployment(replicas=2)
    )
    words = ("plan", "--offline", "-f", file, "--headroom", "md/chat", "-n", "ml")
    result = cli(*words)
    title, header, row, why = result.out.splitlines()
    assert (result.code, title) == (0, "ModelDeployment ml/chat: headroom 1, wanted 2")
    assert (header.split(), row.split()) == (["CLUSTER", "REPLICAS"], ["eu", "1"])
    assert why.startswith("  Next replica: 1 of 2 replicas scheduled")
    failed = cli(*words, "--fail-on-shortfall")
    assert (failed.code, failed.out) == (1, result.out)


def test_headroom_follows_the_given_policy(cli: Cli, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("quotas: [{namespace: ml, maxNodes: 3}]\n")
    fleet = [a_class(), a_cluster("eu", nodes=9), a_deployment(replicas=1)]
    assert (
        asked(
            cli,
            tmp_path,
            *fleet,
            words=("--headroom", "md/chat", "--policy", str(policy)),
        )["headroom"]
        == 3
    )


# The cheapest cluster


def test_the_cheapest_offered_cluster_is_named(cli: Cli, tmp_path: Path) -> None:
    """Three replicas and one place: two are missing.

    The small cluster is cheap and too small, the unpriced one is the last that is
    sufficient.
    """
    fleet = [a_class(), a_cluster("eu", nodes=1), a_deployment(replicas=3)]
    classes = [
        priced("fast", "98.32"),
        priced("slow", "12.5"),
        priced("free-of-price"),
        priced("weak", "0.1", memory="24Gi"),
    ]
    choice = [
        of_class("fast-one", "fast"),
        of_class("slow-one", "slow"),
        of_class("small-one", "slow", nodes=1),
        of_class("unpriced-one", "free-of-price"),
        of_class("weak-one", "weak"),
    ]
    file = a_file(tmp_path, *classes, *choice, name="offers.json")
    words = ("--cheapest-cluster", file, "--for", "md/chat")
    found = asked(cli, tmp_path, *fleet, words=words)
    assert (found["missing"], found["cheapest"], found["enough"]) == (
        2,
        "slow-one",
        True,
    )
    assert [
        (
            each["cluster"],
            each["replicas"],
            each["nodes"],
            each["costMilli"],
            each["enough"],
        )
        for each in found["offers"]
    ] == [
        ("slow-one", 2, {"h200": 2}, 25_000, True),
        ("fast-one", 2, {"h200": 2}, 196_640, True),
        ("unpriced-one", 2, {"h200": 2}, -1, True),
        ("small-one", 1, {"h200": 1}, 12_500, False),
        ("weak-one", 0, {}, 0, False),
    ]
    shown = cli(
        "plan", "--offline", "-f", a_file(tmp_path, *fleet), "-n", "ml", *words
    ).out.splitlines()
    assert shown[0] == (
        "ModelDeployment ml/chat: 2 of 3 replicas are not placed; the cheapest "
        "sufficient cluster is slow-one"
    )
    assert shown[1].split() == ["CLUSTER", "REPLICAS", "NODES", "COST/H", "RESULT"]
    assert shown[2].split() == [
        "slow-one",
        "2",
        "of",
        "2",
        "h200",
        "x2",
        "25.00",
        "sufficient",
    ]
    assert shown[4].split()[-2:] == ["unknown", "sufficient"]


def test_offered_classes_become_clusters_that_match_the_deployment(
    cli: Cli, tmp_path: Path
) -> None:
    picky = a_deployment(replicas=2, clusterSelector={"matchLabels": {"tier": "gold"}})
    file = a_file(
        tmp_path, priced("fast", "98.32"), priced("slow", "12.5"), name="offers.json"
    )
    found = asked(
        cli,
        tmp_path,
        a_class(),
        a_cluster("eu"),
        picky,
        words=("--cheapest-cluster", file, "--for", "md/chat"),
    )
    assert (found["missing"], found["cheapest"]) == (2, "class/slow")


def test_a_deployment_that_fits_needs_no_further_cluster(
    cli: Cli, tmp_path: Path
) -> None:
    offers = a_file(tmp_path, priced("slow", "12.5"), name="offers.json")
    fleet = a_file(tmp_path, a_class(), a_cluster("eu"), a_deployment(replicas=2))
    result = cli(
        "plan",
        "--offline",
        "-f",
        fleet,
        "-n",
        "ml",
        "--cheapest-cluster",
        offers,
        "--for",
        "md/chat",
        "--fail-on-shortfall",
    )
    assert (result.code, result.out) == (
        0,
        "ModelDeployment ml/chat: all 2 replicas are placed; no cluster is needed\n",
    )


def test_the_answer_is_no_if_no_offer_is_sufficient(cli: Cli, tmp_path: Path) -> None:
    offers = a_file(tmp_path, priced("weak", "1", memory="24Gi"), name="offers.json")
    fleet = a_file(
        tmp_path, a_class(), a_cluster("eu", nodes=1), a_deployment(replicas=2)
    )
    result = cli(
        "plan",
        "--offline",
        "-f",
        fleet,
        "-n",
        "ml",
        "--cheapest-cluster",
        offers,
        "--for",
        "md/chat",
        "--fail-on-shortfall",
    )
    assert (
        result.code,
        result.out.splitlines()[0].endswith(
            "none of these clusters is sufficient alone"
        ),
    ) == (1, True)
    assert "had no pool for engine main" in result.out


# Draining


def test_a_drain_check_lists_moving_and_remaining_replicas(
    cli: Cli, tmp_path: Path
) -> None:
    tolerant = a_deployment("tolerant", 1, **TOLERANT)
    fleet = [
        a_class(),
        a_cluster("eu"),
        a_cluster("us"),
        tolerant,
        a_replica("tolerant-1", "eu", "tolerant"),
        a_deployment(replicas=1),
    ]
    fleet += [a_replica("chat-1", "eu"), a_replica("orphan-1", "us", "orphan")]
    found = asked(cli, tmp_path, *fleet, words=("--can-drain", "eu"))
    (move,) = found["moves"]
    assert (
        found["possible"],
        move["name"],
        move["leaves"],
        move["comes"],
        move["missing"],
    ) == (True, "chat", ["chat-1"], ["us"], 0)
    assert found["stays"] == [
        {
            "namespace": "ml",
            "name": "tolerant",
            "replica": "tolerant-1",
            "tolerates": True,
        }
    ]


def test_a_drain_check_fails_if_a_replica_would_be_lost(
    cli: Cli, tmp_path: Path
) -> None:
    file = a_file(
        tmp_path,
        a_class(),
        a_cluster("eu", nodes=1),
        a_deployment(replicas=1),
        a_replica("chat-1", "eu"),
    )
    result = cli(
        "plan", "--offline", "-f", file, "--can-drain", "ic/eu", "--fail-on-shortfall"
    )
    title, header, row = result.out.splitlines()
    assert (result.code, title) == (
        1,
        "InferenceCluster eu cannot be drained now: some replicas would not be placed again",
    )
    assert header.split() == ["DEPLOYMENT", "EVICTED", "PLACED", "ON", "SHORTFALL"]
    assert row.split()[:3] == ["ml/chat", "1", "-"]
    assert "had untolerated taint" in row


# The live fleet


def test_questions_about_the_live_fleet_include_proposed_changes() -> None:
    """Four nodes on two sites, two of them used.

    A quota, a scale and a drain are proposed.
    """
    live = two_sites()
    before = snapshot.dump(live.fleet)

    def headroom(
        proposed: ProposedChanges, policy: SchedulerOptions | None = None
    ) -> Any:
        return answer(
            Question(HEADROOM, CHAT),
            question_context(live, proposed, policy, now_ms()),
            now_ms(),
        )["headroom"]

    assert headroom(ProposedChanges()) == 4
    assert headroom(ProposedChanges(drained=("eu",))) == 2
    assert headroom(ProposedChanges(trees=[a_cluster("new", nodes=3)])) == 7
    assert (
        headroom(
            ProposedChanges(), SchedulerOptions(quotas=(Quota("ml", max_nodes=3),))
        )
        == 3
    )
    drain = answer(
        Question(CAN_DRAIN, cluster="eu"),
        question_context(live, ProposedChanges(scales={CHAT: 3}), None, now_ms()),
        now_ms(),
    )
    assert (drain["possible"], drain["moves"][0]["missing"]) == (False, 1)
    assert snapshot.dump(live.fleet) == before


def test_a_drain_check_gives_no_reason_where_no_replica_is_lost() -> None:
    """A quota stops a third replica, before the drain as after it."""
    live = two_sites()
    context = question_context(
        live,
        ProposedChanges(scales={CHAT: 3}),
        SchedulerOptions(quotas=(Quota("ml", max_nodes=2),)),
        now_ms(),
    )
    found = answer(Question(CAN_DRAIN, cluster="eu"), context, now_ms())
    (move,) = found["moves"]
    assert (found["possible"], move["missing"], move["message"]) == (True, 0, "")
    assert (len(move["leaves"]), move["comes"]) == (
        len(move["comes"]),
        ["us"] * len(move["comes"]),
    )


UNKNOWN = [
    ("a deployment", Question(HEADROOM, ("ml", "nope")), "ModelDeployment ml/nope"),
    ("a cluster", Question(CAN_DRAIN, cluster="oslo"), "InferenceCluster oslo"),
]


@pytest.mark.parametrize(
    ("story", "question", "say"), UNKNOWN, ids=[row[0] for row in UNKNOWN]
)
def test_a_question_about_an_unknown_object_names_it(
    story: str, question: Question, say: str
) -> None:
    del story
    with pytest.raises(NotFound, match=say):
        answer(
            question,
            question_context(two_sites(), ProposedChanges(), None, now_ms()),
            now_ms(),
        )


# Mistakes

BAD_USAGE = [
    (
        "two questions",
        ["--headroom", "md/chat", "--can-drain", "eu"],
        "--headroom and --can-drain are separate questions",
    ),
    (
        "offers without a deployment",
        ["--cheapest-cluster", "offers.yaml"],
        "--cheapest-cluster and --for go together",
    ),
    (
        "a deployment without offers",
        ["--for", "md/chat"],
        "--cheapest-cluster and --for go together",
    ),
    (
        "headroom of a cluster",
        ["--headroom", "ic/eu"],
        "only a ModelDeployment can be named here",
    ),
    (
        "headroom of a kind",
        ["--headroom", "md"],
        "only a ModelDeployment can be named here",
    ),
    ("headroom of several kinds", ["--headroom", "md,ic"], "write --headroom md/NAME"),
    (
        "offers that are not there",
        ["--cheapest-cluster", "/nope.yaml", "--for", "md/chat"],
        "/nope.yaml",
    ),
    (
        "the reference answers no questions",
        ["--offline", "--headroom", "md/chat", "--compat", "reference"],
        "answers no questions",
    ),
    (
        "a question about no files",
        ["--offline", "--headroom", "md/chat"],
        "nothing to read",
    ),
]


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    ("story", "words", "say"), BAD_USAGE, ids=[row[0] for row in BAD_USAGE]
)
def test_an_invalid_question_is_rejected_before_any_request(
    cli: Cli, story: str, words: list[str], say: str
) -> None:
    result = cli("plan", *words)
    assert (result.code, result.out) == (2, ""), story
    assert say in " ".join(result.err.split())


def test_every_offer_that_cannot_be_used_is_named_at_once(
    cli: Cli, tmp_path: Path
) -> None:
    fleet = a_file(
        tmp_path, a_class(), a_cluster("eu", nodes=1), a_deployment(replicas=2)
    )
    offers = a_file(
        tmp_path, a_cluster("eu"), of_class("new", "b200"), name="offers.json"
    )
    result = cli(
        "plan",
        "--offline",
        "-f",
        fleet,
        "-n",
        "ml",
        "--cheapest-cluster",
        offers,
        "--for",
        "md/chat",
    )
    assert result.code == 2
    assert (
        "InferenceCluster eu is already in the fleet; an offered cluster needs an unused name"
        in result.err
    )
    assert "InferenceCluster new: class b200 of pool h200 is not known" in result.err
    other = a_file(tmp_path, a_deployment(), name="other.json")
    refused = cli(
        "plan",
        "--offline",
        "-f",
        fleet,
        "-n",
        "ml",
        "--cheapest-cluster",
        other,
        "--for",
        "md/chat",
    )
    assert (refused.code, "contains ModelDeployment" in refused.err) == (2, True)
