"""The use cases of examples/use-cases, applied to a local fleet with their hardware.

Each cluster of the use cases is a real API server with simulated nodes of the class
that the example describes. Left out is `two-clouds-with-failover`, whose clusters a
cloud creates: its plan is tested with the documentation. The fleet has no gateway, so
services have no address. It has neither a hub nor endpoint pickers, so some replicas
are placed and wait, with the reason in `WAITS`. The testbed has installed the serving
stack, so the clusters are annotated `external`.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from api_types import labels
from tests.client.commands.local_fleet import modelplane, processes_of
from tests.environment.waiting import TIMEOUT_SECONDS, pauses

pytestmark = [pytest.mark.testbed, pytest.mark.soak, pytest.mark.timeout(1800)]

Json = dict[str, Any]
ROOT = Path(__file__).parents[2] / "examples" / "use-cases"
IN_CLOUDS = {"two-clouds-with-failover"}
NAMES = sorted(each.parent.name for each in ROOT.glob("*/README.md"))
APPLIED = [name for name in NAMES if name not in IN_CLOUDS]
WAITS = {
    "lora-adapters": "ModelCache",
    "multi-node-gang": "ModelCache",
    "prefill-and-decode": "PrefillDecode needs an endpoint picker",
}
"""The text of the reason of replicas that this fleet cannot run."""
SETTINGS = {
    "MODELPLANE_TEARDOWN__DRAIN_SECONDS": "0",
    # No hub is reachable.
    "HTTPS_PROXY": "http://127.0.0.1:1",
    "NO_PROXY": "127.0.0.1,localhost",
}
WAIT = ("--wait", "--timeout", str(TIMEOUT_SECONDS))


def documents(name: str, file: str) -> list[Json]:
    return list(yaml.safe_load_all((ROOT / name / file).read_text()))


def fleet_file() -> Json:
    """Return a fleet with the clusters, pools and classes of all applied use cases."""
    classes: dict[str, Json] = {}
    clusters: dict[str, dict[str, Json]] = {}
    for name in APPLIED:
        for tree in documents(name, "fleet.yaml"):
            metadata, spec = tree["metadata"], tree["spec"]
            if tree["kind"] == "InferenceClass":
                classes[metadata["name"]] = {"devices": spec["devices"]}
                continue
            pools = clusters.setdefault(metadata["name"], {})
            for pool in spec["nodePools"]:
                nodes = max(
                    pool["nodeCount"], pools.get(pool["name"], {}).get("nodes", 0)
                )
                pools[pool["name"]] = {
                    "name": pool["name"],
                    "class": pool["className"],
                    "nodes": nodes,
                }
    return {
        "control": False,
        "classes": classes,
        "clusters": [
            {"name": name, "pools": list(pools.values())}
            for name, pools in clusters.items()
        ],
    }


class LocalFleet:
    """A local fleet with these clusters and without objects."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self._file = folder / "fleet.json"

    def start(self) -> None:
        self._file.write_text(json.dumps(fleet_file()))
        self.must("up", "--no-data-plane", "--fleet", str(self._file), "--wait")
        self.must("delete", "ic", "--all", *WAIT)
        self.must("delete", "icl", "--all", *WAIT)

    def must(self, *words: str) -> str:
        ended = modelplane(self.home, *words, **SETTINGS)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def fleet_of(self, name: str) -> str:
        """Write the fleet of a use case with the annotations of the testbed's stack."""
        trees = documents(name, "fleet.yaml")
        for tree in trees:
            if tree["kind"] == "InferenceCluster":
                own = tree["metadata"].get("annotations") or {}
                stack = {labels.STACK: "external", labels.ROUTING: "service"}
                tree["metadata"]["annotations"] = own | stack
        file = self.home / "use-case.yaml"
        file.write_text(yaml.safe_dump_all(trees))
        return str(file)

    def add_secrets(self, name: str) -> None:
        """Store the kubeconfigs that the clusters of a use case name."""
        for tree in documents(name, "fleet.yaml"):
            if tree["kind"] != "InferenceCluster":
                continue
            cluster = tree["metadata"]["name"]
            config = self.home / "clusters" / cluster / "admin.kubeconfig"
            reference = tree["spec"]["cluster"]["existing"]["secretRef"]
            secret = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "name": reference["name"],
                    "namespace": reference.get("namespace", "modelplane-system"),
                },
                "stringData": {"kubeconfig": config.read_text()},
            }
            self._file.write_text(json.dumps(secret))
            self.must("apply", "-f", str(self._file))


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    fleet = LocalFleet(tmp_path_factory.mktemp("use-cases"))
    try:
        fleet.start()
        yield fleet
    finally:
        modelplane(fleet.home, "down", "--wipe")
    assert processes_of(fleet.home) == []


def planned(local: LocalFleet, name: str) -> dict[str, list[tuple[str, str]]]:
    """Return cluster and pools of each replica in the plan of the README, by deployment."""
    policy = ROOT / name / "policy.yaml"
    words = ["--policy", str(policy)] if policy.exists() else []
    for file in ("fleet.yaml", "model.yaml"):
        words += ["-f", str(ROOT / name / file)]
    found = json.loads(local.must("plan", "--offline", *words, "-o", "json"))
    return {
        f"{each['namespace']}/{each['name']}": sorted(
            (one["cluster"], ",".join(engine["pool"] for engine in one["engines"]))
            for one in each["placements"]
        )
        for each in found["decisions"]
    }


def placed(trees: list[Json]) -> dict[str, list[tuple[str, str]]]:
    """Return cluster and pools of each replica, by deployment."""
    found: dict[str, list[tuple[str, str]]] = {}
    for tree in trees:
        metadata, spec = tree["metadata"], tree["spec"]
        owner = metadata["labels"]["modelplane.ai/deployment"]
        pools = [each["members"][0]["nodePoolName"] for each in spec["engines"]]
        found.setdefault(f"{metadata['namespace']}/{owner}", []).append(
            (spec["clusterName"], ",".join(pools))
        )
    return {name: sorted(places) for name, places in found.items()}


@pytest.mark.parametrize("name", APPLIED)
def test_a_use_case_runs_as_its_plan_says(local: LocalFleet, name: str) -> None:
    local.add_secrets(name)
    before = local.must("policy", "get")
    policy = ROOT / name / "policy.yaml"
    if policy.exists():
        local.must("policy", "set", "-f", str(policy))
    model = str(ROOT / name / "model.yaml")
    fleet = local.fleet_of(name)
    local.must("apply", "-f", fleet, *WAIT)
    local.must("apply", "-f", model)
    plan = {owner: places for owner, places in planned(local, name).items() if places}
    try:
        for pause in pauses():
            seen = json.loads(local.must("get", "mr", "-A", "-o", "json"))["items"]
            if placed(seen) == plan and all(arrived(each, name) for each in seen):
                break
            time.sleep(pause)
        assert placed(seen) == plan
        assert [each for each in seen if not arrived(each, name)] == []
    finally:
        local.must("delete", "-f", model, *WAIT)
        local.must("delete", "-f", fleet, *WAIT)
        if policy.exists():
            (local.home / "policy.yaml").write_text(before)
            local.must("policy", "set", "-f", str(local.home / "policy.yaml"))


def arrived(replica: Json, name: str) -> bool:
    """Whether a replica of a use case is Ready, or waits for the expected reason."""
    conditions = replica["status"].get("conditions") or []
    ready: Json = next((each for each in conditions if each["type"] == "Ready"), {})
    if name in WAITS:
        return WAITS[name] in str(ready.get("message"))
    return bool(ready.get("status") == "True")


def test_every_use_case_is_applied_or_left_out_for_its_clouds() -> None:
    sources = {
        name: {
            tree["spec"]["cluster"]["source"]
            for tree in documents(name, "fleet.yaml")
            if tree["kind"] == "InferenceCluster"
        }
        for name in NAMES
    }
    assert {
        name for name, found in sources.items() if found != {"Existing"}
    } == IN_CLOUDS
