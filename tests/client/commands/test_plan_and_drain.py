"""Plan, explain, drain, cordon, uncordon and retry on a real fleet."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client.follow.requests import current_user
from testbed.running import Running
from tests.client.commands.live import TOO_BIG, eventually, manifest
from tests.client.conftest import Cli
from tests.environment.waiting import TIMEOUT_SECONDS

pytestmark = pytest.mark.testbed


@pytest.fixture
def drained(here: Running, cli: Cli) -> Iterator[str]:
    """A cluster that a test drains; all are uncordoned at the end."""
    yield min(here.clusters)
    assert [cli("uncordon", name).code for name in here.clusters] == [0] * len(here.clusters)


def a_file(folder: Path, text: str) -> str:
    file = folder / "manifest.json"
    file.write_text(text)
    return str(file)


def decisions(out: str) -> dict[str, Any]:
    return {decision["name"]: decision for decision in json.loads(out)["decisions"]}


def clusters_of(cli: Cli, tenant: str) -> list[str]:
    shown = json.loads(cli("get", "mr", "-n", tenant, "-o", "json").out)
    return sorted(replica["spec"]["clusterName"] for replica in shown["items"])


def test_a_drain_does_what_its_plan_shows(cli: Cli, tenant: str, tmp_path: Path, drained: str, here: Running) -> None:
    other = next(name for name in here.clusters if name != drained)
    file = a_file(tmp_path, manifest(tenant))
    first = decisions(cli("plan", "-f", file, "-o", "json").out)["demo"]
    assert cli("apply", "-f", file, "--wait", "--timeout", str(TIMEOUT_SECONDS)).code == 0
    assert clusters_of(cli, tenant) == sorted(placement["cluster"] for placement in first["placements"])

    planned = decisions(cli("plan", "--drain", drained, "-o", "json").out)["demo"]
    assert [eviction["cluster"] for eviction in planned["evictions"]] == [drained]
    assert clusters_of(cli, tenant) == sorted(here.clusters)  # a plan changes nothing

    result = cli("drain", drained, "--wait", "--timeout", str(TIMEOUT_SECONDS))
    assert (result.code, result.out) == (0, f"inferencecluster/{drained} drain requested\n"), result.err
    assert ": gone" in result.err
    assert clusters_of(cli, tenant) == [placement["cluster"] for placement in planned["placements"]] == [other, other]
    assert cli("drain", drained).out == f"inferencecluster/{drained} is drained already\n"

    assert cli("uncordon", drained).out == f"inferencecluster/{drained} uncordoned\n"
    assert cli("uncordon", drained).out == f"inferencecluster/{drained} was neither drained nor cordoned\n"
    assert clusters_of(cli, tenant) == [other, other]  # nothing moves back by itself


def test_a_drain_that_would_lose_replicas_is_refused_and_its_budget_holds_where_it_is_not(
    cli: Cli, tenant: str, tmp_path: Path, drained: str, here: Running
) -> None:
    other = next(name for name in here.clusters if name != drained)
    file = a_file(tmp_path, manifest(tenant, drain={"maxUnavailable": 1}))
    assert cli("apply", "-f", file, "--wait", "--timeout", str(TIMEOUT_SECONDS)).code == 0
    # No user waits for it: the scheduler alone has the deployment ask again.
    assert cli("drain", drained).out == f"inferencecluster/{drained} drain requested\n"
    eventually(lambda: cli("get", "mr", "-n", tenant), lambda seen: (seen.out.count(drained), seen.out.count(f" {other} ")) == (0, 2))
    assert cli("apply", "-f", file, "--wait", "--timeout", str(TIMEOUT_SECONDS)).code == 0

    refused = cli("drain", other)
    assert (refused.code, refused.out) == (1, "")
    lines = refused.err.splitlines()
    assert lines[0] == f"error: InferenceCluster {other} was not drained: some replicas would find no other place"
    assert any(line.split()[:2] == [f"{tenant}/demo", "2"] for line in lines), refused.err
    assert f"`modelplane drain {other} --allow-loss`" in lines[-1]
    refused = cli("delete", f"ic/{other}", "--evict")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith(f"error: InferenceCluster {other} was not deleted: some replicas would find no other place")
    shown = json.loads(cli("get", "ic", other, "-o", "json").out)
    assert "taints" not in shown["spec"]
    assert "deletionTimestamp" not in shown["metadata"]
    assert clusters_of(cli, tenant) == [other, other]

    lost = cli("drain", other, "--allow-loss", "--reason", "power cut", "--wait", "--timeout", "8")
    assert (lost.code, lost.out) == (5, f"inferencecluster/{other} drain requested\n"), lost.err
    assert f"warning: some replicas of InferenceCluster {other} find no other place" in lost.err
    # A second one may not be unavailable as long as the first has no place.
    eventually(lambda: clusters_of(cli, tenant), lambda seen: seen == [other])
    assert condition_of(cli, other) == ("Drained", "power cut")
    assert cli("drain", other).out == f"inferencecluster/{other} is drained already\n"


def test_a_cordon_keeps_what_runs_and_takes_nothing_new(cli: Cli, tenant: str, tmp_path: Path, drained: str, here: Running) -> None:
    other = next(name for name in here.clusters if name != drained)
    assert cli("apply", "-f", a_file(tmp_path, manifest(tenant)), "--wait", "--timeout", str(TIMEOUT_SECONDS)).code == 0
    before = clusters_of(cli, tenant)
    assert drained in before

    assert cli("cordon", drained, "--reason", "new rack").out == f"inferencecluster/{drained} cordoned\n"
    assert cli("cordon", drained).out == f"inferencecluster/{drained} takes no replicas already\n"
    assert condition_of(cli, drained) == ("Cordoned", "new rack")
    titles, row = cli("get", "ic", drained).out.splitlines()
    assert row.split()[titles.split().index("READY")] == "True,SchedulingDisabled"
    assert cli("scale", "md/demo", "--replicas", "3", "-n", tenant, "--wait", "--timeout", str(TIMEOUT_SECONDS)).code == 0
    assert clusters_of(cli, tenant) == sorted([*before, other])

    assert cli("uncordon", drained).out == f"inferencecluster/{drained} uncordoned\n"
    reasons = [line.split()[2] for line in cli("events", f"ic/{drained}").out.splitlines()[1:]]
    assert [reason for reason in reasons if reason in {"Cordoned", "Uncordoned"}][-2:] == ["Cordoned", "Uncordoned"]
    assert "SchedulingDisabled" not in cli("get", "ic", drained).out


def condition_of(cli: Cli, cluster: str) -> tuple[str, str]:
    """The reason of the condition SchedulingDisabled, and what the user gave as the reason."""
    tree = json.loads(cli("get", "ic", cluster, "-o", "json").out)
    (found,) = [one for one in tree["status"]["conditions"] if one["type"] == "SchedulingDisabled"]
    assert f" by {current_user()} at " in found["message"]
    return found["reason"], found["message"].rpartition(": ")[2]


def test_18_6_4_answers_agree_with_the_plan(
    cli: Cli,
    tenant: str,
    tmp_path: Path,
    here: Running,
) -> None:
    def ask(*words: str) -> Any:
        result = cli("plan", "-n", tenant, "-o", "json", *words)
        assert result.code == 0, result.err
        return json.loads(result.out)

    assert cli("apply", "-f", a_file(tmp_path, manifest(tenant)), "--wait", "--timeout", str(TIMEOUT_SECONDS)).code == 0
    room = ask("--headroom", "md/demo")
    most = room["headroom"]
    assert most > room["wanted"] == 2
    assert decisions(cli("plan", "-n", tenant, "--scale", f"md/demo={most}", "-o", "json").out)["demo"]["shortfall"] == 0
    assert decisions(cli("plan", "-n", tenant, "--scale", f"md/demo={most + 1}", "-o", "json").out)["demo"]["shortfall"] == 1

    classes = json.loads(cli("get", "icl", "-o", "json").out)
    for each, price in zip(classes["items"], ("30", "10", "20"), strict=True):
        each["metadata"]["annotations"] = {"modelplane.ai/price-per-node-hour": price}
    second = classes["items"][1]["metadata"]["name"]
    offers = ask("--cheapest-cluster", a_file(tmp_path, json.dumps(classes)), "--for", "md/demo", "--scale", f"md/demo={most + 3}")
    assert (offers["missing"], offers["cheapest"]) == (3, f"class/{second}")
    assert offers["offers"][0]["costMilli"] == sum(offers["offers"][0]["nodes"].values()) * 10_000

    name = min(here.clusters)
    assert ask("--can-drain", name)["possible"]
    full = cli("plan", "-n", tenant, "--can-drain", name, "--scale", f"md/demo={most}", "--fail-on-shortfall")
    assert (full.code, full.out.splitlines()[0]) == (
        1,
        f"InferenceCluster {name} cannot be drained now: some replicas would not be placed again",
    )


def test_every_replica_is_explained_where_it_is_and_where_it_is_not(cli: Cli, tenant: str, tmp_path: Path) -> None:
    assert cli("apply", "-f", a_file(tmp_path, manifest(tenant)), "--wait", "--timeout", str(TIMEOUT_SECONDS)).code == 0
    stands = json.loads(cli("explain", "md/demo", "-n", tenant, "-o", "json").out)
    assert sorted(replica["cluster"] for replica in stands["replicas"]) == clusters_of(cli, tenant)
    assert {(replica["action"], replica["ready"]) for replica in stands["replicas"]} == {("Keep", True)}

    cli("apply", "-f", a_file(tmp_path, manifest(tenant, TOO_BIG)), "--wait", "--timeout", "4")
    nowhere = cli("explain", "md/too-big", "-n", tenant)
    assert nowhere.code == 0
    assert "0/2 clusters are available: 2 had no pool for engine main (best: " in nowhere.out
    assert "SelectorNoMatch" in nowhere.out
    assert "InsufficientCapacity" in nowhere.out.partition("Conditions:")[2]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "words",
    [
        ["explain", "md/nope"],
        ["plan", "--scale", "md/nope=1"],
        ["plan", "--drain", "nope"],
        ["plan", "--headroom", "md/nope"],
        ["plan", "--can-drain", "nope"],
        ["drain", "nope"],
        ["cordon", "nope"],
        ["uncordon", "nope"],
    ],
    ids=" ".join,
)
def test_what_does_not_exist_is_reported_with_its_own_exit_code(cli: Cli, words: list[str]) -> None:
    result = cli(*words)
    assert (result.code, result.out) == (3, "")


def test_a_retry_reaches_every_owner_that_exists(cli: Cli, here: Running) -> None:
    name = min(here.clusters)
    result = cli("retry", f"ic/{name}", "md/nope")
    assert (result.code, result.out) == (3, f"inferencecluster/{name} retry requested\n")


def test_a_policy_is_set_and_read_back_and_a_bad_one_is_refused(cli: Cli, here: Running, tmp_path: Path) -> None:
    del here
    before = a_file(tmp_path, cli("policy", "get", "-o", "json").out)
    wanted = tmp_path / "policy.yaml"
    wanted.write_text("priorityClasses: {gold: 100}\n")
    assert cli("policy", "set", "-f", str(wanted)).out == "fleet policy configured\n"
    assert json.loads(cli("policy", "get", "-o", "json").out)["priorityClasses"] == {"gold": 100}
    wanted.write_text("profile: nope\n")
    refused = cli("policy", "set", "-f", str(wanted))
    assert (refused.code, "profile: must be one of" in refused.err) == (2, True)
    assert cli("policy", "set", "-f", before).code == 0
