"""Plan, explain, drain, uncordon and retry on a real fleet."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.running import Running
from tests.client.commands.live import TOO_BIG, manifest
from tests.client.conftest import Cli
from tests.environment.waiting import TIMEOUT_SECONDS

pytestmark = pytest.mark.testbed


@pytest.fixture
def drained(here: Running, cli: Cli) -> Iterator[str]:
    """A cluster that a test drains; it is uncordoned at the end."""
    name = min(here.clusters)
    yield name
    assert cli("uncordon", name).code == 0


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
    assert cli("uncordon", drained).out == f"inferencecluster/{drained} was not drained\n"
    assert clusters_of(cli, tenant) == [other, other]  # nothing moves back by itself


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
    assert "0/2 clusters are available: 2 had no pool for engine main." in nowhere.out
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
