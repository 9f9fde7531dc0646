"""Quotas, queues, devices and decisions on the page, compared with the scheduler."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from api_types import labels
from api_types.clock import now_ms
from api_types.resources.kinds import BY_KIND
from fleet_client.placement.explanation import explanation
from fleet_client.placement.live_fleet import read_live
from fleet_client.refs.targets import Target
from front.access.access_file import AccessRules
from scheduler import pool_use
from tests.client.fleetfiles import Tree, a_class, a_deployment
from tests.client.planning.test_live_plan import published, stored
from tests.front.axe.script import findings
from tests.front.browser import Browser
from tests.front.front_under_test import ACCESS, TOKENS
from tests.front.page_states import ShownState
from tests.front.scheduled_fleet import ScheduledFleet, scheduled
from tests.front.shown_fleet import MARKUP
from tests.front.shown_page import enter, opened, served, shows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

QUEUE = {
    "name": "gpus",
    "nominal": 8,
    "used": 10,
    "borrowed": 2,
    "limit": 12,
    "free": 2,
    "pending": 3,
    "tenants": ["team-b"],
}
FULL = "#/ModelDeployment/team-a/chat"


def of(namespace: str, tree: Tree) -> Tree:
    return {**tree, "metadata": {**tree["metadata"], "namespace": namespace}}


def state_of(fleet: ScheduledFleet) -> ShownState:
    return ShownState(fleet.projection, plane=fleet.plane)


def a_full_fleet() -> ScheduledFleet:
    """Three nodes; team-a may use two of them and wants three, team-b has one."""
    eu = published("eu", ("h200", 4))
    eu["metadata"]["annotations"] = {labels.CAPACITY_ADAPTER: "kueue"}
    fleet = scheduled(
        a_class(),
        eu,
        of("team-b", stored(a_deployment("secret", 1))),
        of("team-a", stored(a_deployment("chat", 3))),
        policy={"quotas": [{"namespace": "team-a", "maxNodes": 2}]},
    )
    status = {**eu["status"], "capacity": {"queues": [QUEUE]}}
    fleet.plane.accounts["eu"] = {**eu, "status": status}
    return fleet


def a_fleet_of_devices(*more: Tree) -> ScheduledFleet:
    """Two nodes of eight devices; a replica claims two of them."""
    chat = of("team-a", stored(a_deployment("chat", 1)))
    (member,) = chat["spec"]["template"]["spec"]["engines"][0]["members"]
    member["nodeSelector"]["devices"][0]["count"] = 2
    return scheduled(
        a_class(),
        published("eu", ("h200", 2)),
        chat,
        *more,
        policy={"accounting": "device-safe"},
    )


@pytest.fixture
def rules(tmp_path: Path) -> AccessRules:
    """Rights of tenants, and of all users to read clusters."""
    file = tmp_path / "access.yaml"
    digests = {
        name: sha256(token.encode()).hexdigest() for name, token in TOKENS.items()
    }
    clusters = (
        '- {groups: ["system:authenticated"], clusterScoped: true, '
        "resources: [inferenceclusters], verbs: [get, list, watch]}\n"
    )
    file.write_text(ACCESS.format(**digests) + clusters)
    return AccessRules(file)


async def test_quotas_and_queues_show_their_use_and_the_reason_of_a_wait(
    browser: Browser,
) -> None:
    async with opened(browser, state_of(a_full_fleet())) as tab:
        await shows(tab, "1 waiting", "#quotas")
        rows = await tab.value(
            "[...document.querySelectorAll('#quotas li')].map((e) => "
            "[...e.children].map((each) => each.innerText.trim()))"
        )
    (who, facts), (other, used), (queue, amounts) = rows
    assert who == "team-a … 1 waiting modelplane explain md/chat -n team-a"
    waits, *parts = facts.split("; ")
    assert waits.startswith("1 replica waits for ")
    assert "were over quota (used 2 of 2 nodes, needs 1 more)" in waits
    assert parts == [
        "2 nodes used, 0 held",
        "quota of all pools: 2 of 2 nodes",
        "nothing guaranteed or borrowed",
    ]
    assert other == "team-b modelplane top quotas -n team-b"
    assert used == "1 nodes used, 0 held; no quota"
    assert queue == "eu/gpus … 3 waiting modelplane top queues"
    assert amounts == (
        "10 devices used, 8 guaranteed, 2 borrowed; "
        "limit 12, 2 more would be admitted; for team-b"
    )


async def test_a_deployment_and_its_replicas_show_what_explain_prints(
    browser: Browser,
) -> None:
    fleet = a_full_fleet()
    live = await read_live(fleet.control_plane)
    target = Target.of(BY_KIND["ModelDeployment"], "team-a", "chat")
    truth = explanation(live, target, now_ms())
    first, second = truth["replicas"]
    async with opened(browser, state_of(fleet), view=FULL) as tab:
        await shows(tab, "Why there", "#detail")
        shown = await tab.text("#detail")
        await tab.value(f"location.hash = '#/ModelReplica/team-a/{first['replica']}'")
        await shows(tab, f"team-a/{first['replica']}", "#detail-title")
        of_replica = await tab.text("#detail")
    assert f"1 replica waits: {truth['message']}" in shown
    for replica in (first, second):
        row = [replica[key] for key in ("replica", "cluster", "action", "why")]
        row.insert(2, "main: h200 x1")
        assert "\t".join(row) in shown
    eu = truth["clusters"]["eu"]
    pool = eu["pools"]["h200"]
    assert f"eu\t\t{eu['reason']}\t{eu['detail']}" in shown
    assert f"eu\th200\t{pool['reason']}\t{pool['detail']}" in shown
    assert first["why"] in of_replica
    assert second["replica"] not in of_replica.split("Neighbours")[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_problem_in_quotas_and_decisions(
    browser: Browser, scheme: str
) -> None:
    state = state_of(a_full_fleet())
    async with opened(browser, state, view=FULL, prefers_color_scheme=scheme) as tab:
        await shows(tab, "1 waiting", "#quotas")
        await shows(tab, "Why not elsewhere", "#detail")
        assert await findings(tab) == []


async def test_pools_with_device_accounting_are_drawn_in_devices(
    browser: Browser,
) -> None:
    fleet = a_fleet_of_devices()
    live = await read_live(fleet.control_plane)
    (truth,) = pool_use(live.fleet, now_ms())
    async with opened(browser, state_of(fleet)) as tab:
        await shows(tab, "devices", "#clusters")
        shown = await tab.text("#clusters")
        labels_ = await tab.value(
            "[...document.querySelectorAll('#clusters svg')].map((e) => e.ariaLabel)"
        )
        tiles = await tab.text("#summary")
        legend = await tab.text("#legend")
        assert await tab.text("#problems") == ""
    assert (truth.unit, truth.total, truth.used, truth.free) == ("devices", 16, 2, 8)
    assert "2 used, 0 held, 8 free, 6 wasted devices; on 2 nodes" in shown
    assert "devices: 2 used, 0 held, 8 free, 6 wasted" in shown
    assert labels_ == [
        "Region no region: 2 used, 0 held, 8 free, 6 wasted devices",
        "Pool h200 of eu: 2 used, 0 held, 8 free, 6 wasted devices",
    ]
    assert "Devices free\n8 of 16" in tiles
    assert "Nodes free" not in tiles
    assert "a cell is a device" in legend


async def test_a_tenant_sees_the_charges_of_all_and_the_names_of_the_own_namespace(
    browser: Browser, rules: AccessRules
) -> None:
    fleet = a_full_fleet()
    async with (
        served(state_of(fleet), rules) as url,
        browser.tab(url) as tab,
    ):
        await shows(tab, "401", "#connection")
        await enter(tab, "namespace", "team-a")
        await enter(tab, "token", TOKENS["alice"])
        await shows(tab, "1 waiting", "#quotas")
        # The other tenant has a replica on one of four nodes.
        await shows(tab, "3 used, 0 held, 1 free", "#clusters")
        quotas = await tab.text("#quotas")
        await tab.value(f"location.hash = '{FULL}'")
        await shows(tab, "Why there", "#detail")
        detail = await tab.text("#detail")
        whole = await tab.value("document.documentElement.textContent")
        # The address of an object of the other tenant shows nothing about it.
        await tab.value("location.hash = '#/ModelDeployment/team-b/secret'")
        await shows(tab, "There is no ModelDeployment team-b/secret", "#detail")
    assert "eu/gpus" in quotas
    assert "needs 1 more" in detail
    assert [text for text in ("team-b", "secret") if text in whole] == []


async def test_a_silent_scheduler_leaves_the_last_numbers_with_their_age(
    browser: Browser,
) -> None:
    state = state_of(a_fleet_of_devices())
    async with opened(browser, state) as tab:
        await shows(tab, "8 free, 6 wasted devices", "#clusters")
        state.projection.complete = False
        # The page reads the capacity again when its tab becomes visible.
        await tab.value("document.dispatchEvent(new Event('visibilitychange'))")
        await shows(tab, "The use of capacity cannot be read", "#quotas-notes")
        await shows(tab, "The numbers are from", "#quotas-notes")
        assert "8 free, 6 wasted devices" in await tab.text("#clusters")


async def test_texts_of_quotas_and_explanations_are_not_parsed_as_html(
    browser: Browser,
) -> None:
    fleet = a_full_fleet()
    queue = {**QUEUE, "name": MARKUP, "tenants": [MARKUP]}
    account = fleet.plane.accounts["eu"]
    account["status"]["capacity"] = {"queues": [queue]}
    for stored_ in fleet.projection.of_kind("ModelDeployment").values():
        for told in stored_.tree["status"]["conditions"]:
            told["message"] = MARKUP
    live = fleet.plane.fleet
    entry = next(each for each in live.entries() if each.namespace == "team-a")
    live.put_replica(replace(entry, name=MARKUP))
    async with opened(browser, state_of(fleet), view=FULL) as tab:
        await shows(tab, MARKUP, "#quotas")
        await shows(tab, MARKUP, "#detail")
        assert await tab.value("document.title") == "Fleet: Modelplane"
        assert (
            await tab.value("document.querySelectorAll('img, #fleet script').length")
            == 0
        )
