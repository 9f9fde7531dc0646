"""Every row of the page compared with `modelplane get -o json`, in each state."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from api_types.resources.kinds import BY_KIND
from tests.front.browser import Browser, Tab
from tests.front.command_line import CommandLine
from tests.front.page_states import STATES
from tests.front.shown_page import CONNECTED, served, shows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

Json = dict[str, Any]
LISTS = {
    "services": ("ModelService",),
    "deployments": ("ModelDeployment",),
    "others": ("ModelCache", "InferenceClass", "InferenceGateway", "ModelEndpoint"),
}
KINDS = (*[kind for kinds in LISTS.values() for kind in kinds], "InferenceCluster")
# A list has only the rows in view. This scrolls through it, opens the regions, and returns
# all rows by key.
ALL_ROWS = """
(async (id) => {
  const list = document.getElementById(id), found = {};
  const seen = () => list.querySelectorAll('li').forEach((row) => {
    const svg = row.querySelector('svg');
    const parts = [...row.children].map((each) => each.innerText ?? '');
    found[row.dataset.key] = [...parts, svg?.getAttribute('aria-label') ?? ''].join('\\n');
  });
  for (let at = 0; at <= list.scrollHeight; at += list.clientHeight || 600) {
    list.scrollTop = at;
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    list.querySelectorAll('[aria-expanded=false]').forEach((each) => each.click());
    seen();
  }
  return found;
})(%s)
"""


async def rows(tab: Tab, section: str) -> dict[str, str]:
    found: dict[str, str] = await tab.value(ALL_ROWS % json.dumps(section))
    return found


def full_name(tree: Json) -> str:
    metadata = tree["metadata"]
    return "/".join(
        part for part in (metadata.get("namespace"), metadata["name"]) if part
    )


def condition(tree: Json, kind: str) -> Json:
    found = tree["status"].get("conditions") or []
    return next((each for each in found if each["type"] == kind), {})


def is_ready(tree: Json) -> bool:
    return condition(tree, "Ready").get("status") == "True"


def pods(replica: Json) -> int:
    members = [m for e in replica["spec"]["engines"] for m in e["members"]]
    return sum((m.get("worker") or {}).get("nodes", 1) for m in members)


def nodes_of(cluster: Json) -> int:
    return sum(pool["nodes"] for pool in cluster["status"]["gpuPools"])


@pytest.mark.parametrize("name", STATES)
async def test_each_row_says_what_get_prints(
    browser: Browser,
    name: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    async with served(STATES[name]()) as url:
        command_line = CommandLine(capsys, monkeypatch, tmp_path, url, None)
        truth: dict[str, list[Json]] = {}
        for kind in (*KINDS, "ModelReplica"):
            scope = ["-A"] if BY_KIND[kind].namespaced else []
            got = await command_line.run(
                "get", BY_KIND[kind].plural, *scope, "-o", "json"
            )
            assert got.code == 0, got.err
            truth[kind] = json.loads(got.out)["items"]
        async with browser.tab(url) as tab:
            await shows(tab, CONNECTED, "#connection")
            await shows(tab, lambda text: "Not loaded yet" not in text, "main")
            shown = {section: await rows(tab, section) for section in LISTS}
            pools = await rows(tab, "clusters")
            summary = await tab.text("#summary")
    for section, kinds in LISTS.items():
        expected = {
            f"{kind} {full_name(tree)}": tree for kind in kinds for tree in truth[kind]
        }
        assert shown[section].keys() == expected.keys()
        for key, tree in expected.items():
            assert (" Ready\n" in shown[section][key]) == is_ready(tree), key
    check_deployments(shown["deployments"], truth)
    check_clusters(pools, truth)
    check_sums(summary, truth)


def check_deployments(shown: dict[str, str], truth: dict[str, list[Json]]) -> None:
    for tree in truth["ModelDeployment"]:
        text = shown[f"ModelDeployment {full_name(tree)}"]
        counts = tree["status"]["replicas"]
        expected = (
            f"{counts['ready']} of {tree['spec']['replicas']} replicas Ready, "
            f"{counts['total']} placed"
        )
        assert expected in text
        own = [
            replica["spec"]["clusterName"]
            for replica in truth["ModelReplica"]
            if replica["metadata"]["labels"]["modelplane.ai/deployment"]
            == tree["metadata"]["name"]
        ]
        for cluster, count in Counter(own).items():
            assert f"{cluster} ({count})" in text
        if not is_ready(tree):
            assert condition(tree, "Ready")["message"] in text


def check_clusters(shown: dict[str, str], truth: dict[str, list[Json]]) -> None:
    charged: Counter[str] = Counter()
    for replica in truth["ModelReplica"]:
        charged[replica["spec"]["clusterName"]] += pods(replica)
    clusters = {key for key in shown if not key.startswith("region ")}
    assert clusters == {f"{full_name(each)} 0" for each in truth["InferenceCluster"]}
    for tree in truth["InferenceCluster"]:
        name = full_name(tree)
        text = shown[f"{name} 0"]
        numbers = {
            sort: int(count)
            for count, sort in re.findall(r"(\d+) (\w+)", text.splitlines()[-1])
        }
        numbers.pop("nodes", None)
        closed = numbers.get("draining", 0) + numbers.get("silent", 0)
        assert numbers["used"] + numbers["held"] == charged[name]
        assert sum(numbers.values()) == max(nodes_of(tree), charged[name])
        is_drained = condition(tree, "SchedulingDisabled").get("status") == "True"
        assert ("Drained" in text) == is_drained
        assert ("Silent" in text) == (not is_ready(tree))
        assert (closed > 0) == (is_drained or not is_ready(tree))
        assert bool(numbers["free"]) == (
            charged[name] < nodes_of(tree) and is_ready(tree) and not is_drained
        )


def check_sums(shown: str, truth: dict[str, list[Json]]) -> None:
    deployments = truth["ModelDeployment"]
    ready = sum(tree["status"]["replicas"]["ready"] for tree in deployments)
    placed = sum(tree["status"]["replicas"]["total"] for tree in deployments)
    wanted = sum(tree["spec"]["replicas"] for tree in deployments)
    nodes = sum(map(nodes_of, truth["InferenceCluster"]))
    assert f"Replicas Ready\n{ready} of {wanted}" in shown
    assert f"Waiting for a place\n{wanted - placed}" in shown
    assert re.search(rf"Nodes free\n\d+ of {nodes}\n", shown)
