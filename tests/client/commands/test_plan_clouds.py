"""`modelplane plan` of clusters that would be created at a cloud.

After an intended change: `UPDATE_GOLDEN=1 .venv/bin/pytest
tests/client/commands/test_plan_clouds.py && git diff tests/golden/clouds`.
"""

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from client.commands.preview import plan
from client.planning.proposed_changes import ProposedChanges
from fleet_client.errors import NotFound
from fleet_client.placement import live_fleet
from fleet_client.placement.live_fleet import LiveFleet
from fleet_client.refs.targets import Target
from scheduler import Fleet
from tests.api_types.builders import ORIGINS
from tests.client.conftest import Cli
from tests.client.fleetfiles import API, Tree, a_class, a_cluster, a_deployment, a_file

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "clouds"
EXAMPLES = ROOT / "examples" / "clouds"
# The prices are made up.
PRICES = """
europe-west4: {e2-standard-4: 0.25, g2-standard-8: "1.5"}
us-east-2: {m6i.xlarge: 0.5, g6.2xlarge: 1.125, p4d.24xlarge: 20}
"""

pytestmark = pytest.mark.usefixtures("nowhere")


def a_provisioned_class(name: str = "l4", **block: Any) -> Tree:
    nodes = {
        "machineType": "g2-standard-8",
        "accelerator": {"type": "nvidia-l4", "count": 1},
    }
    tree = a_class(name)
    tree["spec"]["provisioning"] = {"provider": "GKE", "gke": {**nodes, **block}}
    return tree


def a_cloud_cluster(source: str = "GKE", name: str = "prod", *pools: Tree) -> Tree:
    spec: Tree = {"cluster": {"source": source, **ORIGINS[source]}}
    if pools:
        spec["nodePools"] = list(pools)
    return {
        "apiVersion": API,
        "kind": "InferenceCluster",
        "metadata": {"name": name},
        "spec": spec,
    }


def a_pool(name: str = "gpu", **change: Any) -> Tree:
    return {"name": name, "className": "l4", "zones": ["europe-west4-a"], **change}


def a_price_file(folder: Path, text: str = PRICES) -> str:
    file = folder / "prices.yaml"
    file.write_text(text)
    return str(file)


def planned(
    cli: Cli, folder: Path, *trees: Tree, words: Sequence[str] = ()
) -> list[Any]:
    result = cli(
        "plan", "--offline", "-f", a_file(folder, *trees), "-o", "json", *words
    )
    assert result.code == 0, result.err
    clouds: list[Any] = json.loads(result.out)["clouds"]
    return clouds


@pytest.mark.parametrize("name", ["gke", "eks"])
def test_a_plan_reads_as_its_golden_file(cli: Cli, tmp_path: Path, name: str) -> None:
    result = cli(
        "plan",
        "--offline",
        "-o",
        "wide",
        "-f",
        str(EXAMPLES / f"{name}.yaml"),
        "--prices",
        a_price_file(tmp_path),
    )
    assert (result.code, result.err) == (0, "")
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(result.out)
    assert result.out == path.read_text(), "see tests/golden/README.md"


def test_a_narrow_plan_has_no_calls_and_no_sources_of_prices(cli: Cli) -> None:
    result = cli("plan", "--offline", "-f", str(EXAMPLES / "gke.yaml"))
    lines = result.out.splitlines()
    assert (
        lines[0]
        == "InferenceCluster eemshaven: 10 objects would be created on GKE, in this order"
    )
    assert lines[1].split() == ["OBJECT", "KIND", "NAME", "NEEDS", "NODES"]
    assert ("Calls:" in result.out, "https:" in result.out) == (False, False)


def test_placeholders_of_unknown_values_are_explained(cli: Cli, tmp_path: Path) -> None:
    (cloud,) = planned(cli, tmp_path, a_cloud_cluster())
    (note,) = cloud["notes"]
    assert note.startswith("not known before it is created: ")
    assert "PROJECT: the project of the credentials" in note


def test_the_tree_for_machines_has_objects_in_order_with_needs_calls_and_machines(
    cli: Cli, tmp_path: Path
) -> None:
    (cloud,) = planned(
        cli,
        tmp_path,
        a_provisioned_class(),
        a_cloud_cluster("GKE", "prod", a_pool(nodeCount=2)),
    )
    order = cloud["deletionOrder"]
    assert sorted(order) == sorted(each["key"] for each in cloud["objects"])
    assert (
        order.index("pool/gpu")
        < order.index("cluster")
        < order.index("net/subnet")
        < order.index("net/vpc")
    )
    (pool,) = [each for each in cloud["objects"] if each["key"] == "pool/gpu"]
    assert {
        key: pool[key] for key in ("kind", "name", "needs", "waitsFor", "machines")
    } == {
        "kind": "NodePool",
        "name": "gpu",
        "needs": ["cluster"],
        "waitsFor": "operation DONE, status RUNNING",
        "machines": {
            "type": "g2-standard-8",
            "region": "europe-west4",
            "start": 2,
            "most": 2,
        },
    }
    (call,) = pool["calls"]
    assert (
        call["service"],
        call["operation"],
        call["parameters"]["node_pool"]["name"],
    ) == ("container", "create_node_pool", "gpu")


BAD_PRICES = [
    (
        "no mapping",
        "europe-west4: 3",
        ["europe-west4: must be a mapping of machine types to prices"],
    ),
    (
        "no number",
        "r: {m: much, n: -1}",
        [
            "r.m: 'much' is not a price such as 1.25",
            "r.n: -1 is not a price such as 1.25",
        ],
    ),
    ("a truth value", "r: {m: true}", ["r.m: True is not a price such as 1.25"]),
]


@pytest.mark.parametrize(
    ("text", "problems"),
    [row[1:] for row in BAD_PRICES],
    ids=[row[0] for row in BAD_PRICES],
)
def test_an_invalid_price_table_is_rejected_with_every_problem(
    cli: Cli, tmp_path: Path, text: str, problems: list[str]
) -> None:
    result = cli(
        "plan",
        "--offline",
        "-f",
        str(EXAMPLES / "gke.yaml"),
        "--prices",
        a_price_file(tmp_path, text),
    )
    assert (result.code, result.out) == (2, "")
    assert [line.strip() for line in result.err.splitlines()[1:-1]] == problems


@pytest.mark.parametrize("source", ["AKS", "Nebius", "Vultr"])
def test_other_clouds_are_rejected_with_a_next_step(
    cli: Cli, tmp_path: Path, source: str
) -> None:
    result = cli("plan", "--offline", "-f", a_file(tmp_path, a_cloud_cluster(source)))
    assert result.code == 0
    assert result.out.splitlines()[0] == "InferenceCluster prod: nothing can be created"
    assert (
        f"ProviderNotSupported: this release knows no objects of {source} "
        "clusters; create the cluster yourself" in result.out
    )


def test_all_refusals_are_listed_at_once_and_fail_the_command_on_request(
    cli: Cli, tmp_path: Path
) -> None:
    file = a_file(
        tmp_path,
        a_provisioned_class(),
        a_cloud_cluster(
            "GKE", "one", a_pool(className="gone"), a_pool("system"), a_pool("ok")
        ),
        a_cloud_cluster("EKS", "two", a_pool("far", zones=["us-west-2a"])),
    )
    result = cli("plan", "--offline", "-f", file)
    assert result.code == 0
    assert "InferenceCluster one: 10 objects would be created on GKE" in result.out
    assert "InferenceCluster two: nothing can be created" in result.out
    refused = [
        (
            "WaitingForClasses: pool gpu: InferenceClass gone does not exist; apply "
            "it, or pass its file to the plan"
        ),
        (
            'InvalidNodePool: pool system: "system" is the pool that is added to '
            "every cluster; choose another name"
        ),
        (
            "InvalidNodePool: pool far: InferenceClass l4 has no "
            "spec.provisioning.eks; add it, or use another class"
        ),
        (
            'InvalidInput: pool far: zone "us-west-2a" is not in region us-east-2, '
            "whose zones are us-east-2a and so on"
        ),
    ]
    assert [text for text in refused if text not in result.out] == []

    failed = cli("plan", "--offline", "-f", file, "--fail-on-shortfall")
    assert (failed.code, failed.out) == (1, result.out)
    assert [text for text in refused if text not in failed.err] == []
    assert (
        cli(
            "plan", "--offline", "-f", str(EXAMPLES / "gke.yaml"), "--fail-on-shortfall"
        ).code
        == 0
    )


def test_warnings_are_shown(cli: Cli, tmp_path: Path) -> None:
    file = a_file(
        tmp_path,
        a_provisioned_class(),
        a_cloud_cluster(
            "GKE", "prod", a_pool(zones=["europe-west4-a", "europe-west4-b"])
        ),
    )
    assert (
        "NodesPerZone: pool gpu: GKE counts nodes per zone: 2 zones start 2 nodes"
        in cli("plan", "--offline", "-f", file).out
    )


def test_text_of_a_manifest_cannot_look_like_a_line_of_the_plan(
    cli: Cli, tmp_path: Path
) -> None:
    file = a_file(
        tmp_path,
        a_provisioned_class(),
        a_cloud_cluster("GKE", "prod", a_pool(zones=["x\n  net/vpc \x1b[31m"])),
    )
    result = cli("plan", "--offline", "-f", file)
    assert "\x1b" not in result.out
    assert not [
        line for line in result.out.splitlines() if line.startswith("  net/vpc")
    ]


def test_settings_change_the_plan(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELPLANE_GKE__NODE_CIDR", "172.20.0.0/22")
    (cloud,) = planned(cli, tmp_path, a_cloud_cluster())
    assert "172.20.0.0/22" in json.dumps(cloud)


def test_where_deployments_are_placed_no_cloud_is_planned(
    cli: Cli, tmp_path: Path
) -> None:
    trees = (
        a_provisioned_class("h200"),
        a_cloud_cluster("GKE", "prod", a_pool(className="h200")),
        a_deployment(),
    )
    result = cli("plan", "--offline", "-f", a_file(tmp_path, *trees), "-o", "json")
    assert "clouds" not in json.loads(result.out)
    assert (
        cli(
            "plan",
            "--offline",
            "-f",
            a_file(tmp_path, *trees),
            "--prices",
            a_price_file(tmp_path),
        ).code
        == 2
    )


def test_a_plan_needs_a_deployment_or_a_new_cluster(cli: Cli, tmp_path: Path) -> None:
    result = cli(
        "plan", "--offline", "-f", a_file(tmp_path, a_class(), a_cluster("eu"))
    )
    assert (result.code, "no ModelDeployment to plan" in result.err) == (2, True)


def test_with_a_control_plane_classes_of_the_fleet_count_too(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = a_provisioned_class()

    async def live(wanted: ProposedChanges) -> LiveFleet:
        del wanted
        return LiveFleet(Fleet(), {"l4": known}, {}, {}, {})

    monkeypatch.setattr(plan, "_live", live)
    result = cli(
        "plan",
        "-f",
        a_file(tmp_path, a_cloud_cluster("GKE", "prod", a_pool())),
        "-o",
        "json",
    )
    assert result.code == 0, result.err
    (cloud,) = json.loads(result.out)["clouds"]
    assert (cloud["refused"], "pool/gpu" in cloud["deletionOrder"]) == ([], True)


class FleetAtCloud:
    """A fleet with one cluster at GKE or none.

    Its CloudCluster has all objects of its spec.
    """

    def __init__(self, cluster: Tree, cli: Cli, folder: Path) -> None:
        self.classes = {"l4": a_provisioned_class()}
        self.cluster = cluster | {
            "metadata": {"name": "prod", "uid": "0f0e", "generation": 3},
            "status": {"conditions": []},
        }
        (planned_now,) = planned(cli, folder, a_provisioned_class(), cluster)
        self.rows = [
            {
                "key": each["key"],
                "kind": each["kind"],
                "name": each["name"],
                "id": "",
                "phase": "Ready",
            }
            for each in planned_now["objects"]
        ]

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def live(wanted: ProposedChanges) -> LiveFleet:
            del wanted
            return LiveFleet(
                Fleet(),
                self.classes,
                {"prod": self.cluster},
                {},
                {},
                inventories={"prod": self.rows},
            )

        monkeypatch.setattr(plan, "_live", live)

    def row(self, key: str) -> Tree:
        (found,) = [row for row in self.rows if row["key"] == key]
        return found


@pytest.fixture
def there(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FleetAtCloud:
    """A cluster with the pools gpu (at most two nodes) and old."""
    made = FleetAtCloud(
        a_cloud_cluster("GKE", "prod", a_pool(maxNodeCount=2), a_pool("old")),
        cli,
        tmp_path,
    )
    made.install(monkeypatch)
    return made


def actions(cli: Cli, folder: Path, *trees: Tree, words: Sequence[str] = ()) -> Tree:
    """Return the planned action of each changed object by key.

    `-` precedes a deleted one.
    """
    result = cli("plan", "-f", a_file(folder, *trees), "-o", "json", *words)
    assert result.code == 0, result.err
    (cloud,) = json.loads(result.out)["clouds"]
    found = {
        each["key"]: (each["action"], each["changes"])
        for each in cloud["objects"]
        if each["action"] != "keep"
    }
    return found | {each["key"]: ("delete", []) for each in cloud["removed"]}


@pytest.mark.usefixtures("there")
def test_a_cluster_that_is_as_it_is_written_is_left_as_it_is(
    cli: Cli, tmp_path: Path
) -> None:
    cluster = a_cloud_cluster("GKE", "prod", a_pool(maxNodeCount=2), a_pool("old"))
    assert actions(cli, tmp_path, cluster) == {}
    assert (
        cli("plan", "-f", a_file(tmp_path, cluster)).out
        == "InferenceCluster prod: nothing would change on GKE\n"
    )


@pytest.mark.usefixtures("there")
def test_a_plan_lists_created_changed_replaced_and_deleted_objects(
    cli: Cli, tmp_path: Path
) -> None:
    cluster = a_cloud_cluster(
        "GKE", "prod", a_pool(maxNodeCount=6), a_pool("new", className="a100")
    )
    other = a_provisioned_class("a100", machineType="a2-highgpu-1g")
    found = actions(cli, tmp_path, cluster, other)
    assert found["pool/gpu"][0] == "change"
    assert all("autoscaling" in name for name in found["pool/gpu"][1])
    assert {key: action for key, (action, _) in found.items()} == {
        "pool/gpu": "change",
        "pool/new": "create",
        "pool/old": "delete",
    }
    result = cli(
        "plan",
        "-f",
        a_file(tmp_path, cluster, other),
        "--prices",
        a_price_file(tmp_path),
    )
    lines = result.out.splitlines()
    assert lines[0].startswith(
        "InferenceCluster prod: of its objects on GKE, 1 created, 1 changed in place, 1 deleted; "
    )
    signs = {line.split()[1]: line.split()[0] for line in lines[2:5]}
    assert signs == {"pool/gpu": "~", "pool/new": "+", "pool/old": "-"}
    bill = [line.split() for line in lines[lines.index("") + 3 :]]
    costs = {words[1]: words[2:4] for words in bill if len(words) > 1}
    assert (costs["pool/gpu"], costs["pool/new"], "pool/old" in costs) == (
        ["1..6", "1.500..9.000"],
        ["1", "3.748"],
        False,
    )


@pytest.mark.usefixtures("there")
def test_another_machine_would_need_another_pool(cli: Cli, tmp_path: Path) -> None:
    cluster = a_cloud_cluster("GKE", "prod", a_pool(maxNodeCount=2), a_pool("old"))
    changed = a_provisioned_class(machineType="g2-standard-16")
    found = actions(cli, tmp_path, cluster, changed)
    assert {key: action for key, (action, _) in found.items()} == {
        "pool/gpu": "replace",
        "pool/old": "replace",
    }
    assert "machine_type" in found["pool/gpu"][1][0]
    text = cli("plan", "-f", a_file(tmp_path, cluster, changed)).out
    assert "(ReplaceRequired): add another pool, then remove this one." in text


def test_a_pool_that_cannot_be_planned_keeps_its_objects(
    cli: Cli, tmp_path: Path, there: FleetAtCloud
) -> None:
    cluster = a_cloud_cluster(
        "GKE", "prod", a_pool(maxNodeCount=2), a_pool("old", className="gone")
    )
    assert actions(cli, tmp_path, cluster) == {}
    there.row("pool/gpu")["phase"] = "Absent"
    there.row("net/subnet")["phase"] = "Differs"
    assert actions(cli, tmp_path, cluster) == {
        "pool/gpu": ("create", []),
        "net/subnet": ("change", []),
    }


def test_the_objects_of_a_cloud_cluster_are_read_from_the_workflow_of_its_uid() -> None:
    asked: list[tuple[str, str]] = []

    class Plane:
        async def query(self, target: Target, name: str) -> list[Tree]:
            asked.append((target.workflow_id, name))
            if target.name == "new":
                raise NotFound("it does not run", next_step="")
            return [{"key": "cluster"}]

    plane: Any = Plane()
    clusters = [
        {"metadata": {"name": name, "uid": "0f0e"}, "spec": {"cluster": {}}}
        for name in ("prod", "new")
    ]
    found = asyncio.run(live_fleet.read_inventories(plane, clusters))
    assert found == {"prod": [{"key": "cluster"}], "new": ()}
    assert asked == [("cloud/prod/0f0e", "inventory"), ("cloud/new/0f0e", "inventory")]
