"""The page in a real browser, with a front whose objects the test controls."""

import asyncio
import hashlib
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from front.access.access_file import AccessRules
from front.store.projection import ObjectKey
from tests.front.browser import Browser
from tests.front.front_under_test import ACCESS, TOKENS
from tests.front.shown_fleet import (
    MARKUP,
    START,
    a_cluster,
    a_deployment,
    a_fleet,
    a_replica,
    a_service,
    an_object,
    condition,
    put,
)
from tests.front.shown_page import CONNECTED, enter, opened, served, shows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

OLD = "#/ModelReplica/team-a/old-eu-0"


@pytest.fixture
def rules(tmp_path: Path) -> AccessRules:
    file = tmp_path / "access.yaml"
    file.write_text(
        ACCESS.format(
            **{
                name: hashlib.sha256(token.encode()).hexdigest()
                for name, token in TOKENS.items()
            }
        )
    )
    return AccessRules(file)


async def test_clusters_deployments_and_services_are_shown_with_their_problems(
    browser: Browser,
) -> None:
    async with opened(browser, a_fleet()) as tab:
        sections = ("problems", "clusters", "deployments", "services")
        problems, clusters, deployments, services = [
            await tab.text(f"#{name}") for name in sections
        ]
    for text in (
        "InferenceCluster us",
        "the API server does not answer",
        "check that the worker can reach the API server that the kubeconfig names",
        "modelplane describe ic/us",
        "ModelReplica team-a/old-eu-0",
        "waits for apps/v1 Deployment x (a finalizer)",
    ):
        assert text in problems
    for text in ("2 used, 1 held, 1 free", "Silent", "3 held, 0 free, 297 silent"):
        assert text in clusters
    for text in (
        "2 of 3 replicas Ready, 3 placed",
        "on eu (2), us (1)",
        "1 of 3 replicas have the newest template, 1 of them are Ready",
        "NoCapacity: pool gpus of us: 0 nodes free, 2 needed",
    ):
        assert text in deployments
    for text in ("http://10.0.0.1/team-a/chat", "1 of 2 endpoints", "chat-eu-0 100%"):
        assert text in services


async def test_the_detail_view_shows_an_object_whole(browser: Browser) -> None:
    async with opened(browser, a_fleet(), view="#/ModelDeployment/team-a/chat") as tab:
        await shows(tab, "Neighbours", "#detail")
        deployment = await tab.text("#detail")
        await tab.value(f"location.hash = '{OLD}'")
        await shows(tab, "old-eu-0", "#detail-title")
        replica = await tab.text("#detail")
        await tab.value("location.hash = '#/ModelService/team-a/chat'")
        await shows(tab, "Traffic by endpoint", "#detail")
        service = await tab.text("#detail")
    for text in (
        "RollingOut: 1 of 3 replicas updated",
        "modelplane decisions md/chat -n team-a",
        "Starting: engine main loads",
        "Neighbours",
        'status: "False"',
    ):
        assert text in deployment
    for text in (
        "step 2 of 2: delete workloads; since 2026-01-01T10:00:00Z",
        "waits for apps/v1 Deployment x (a finalizer)",
    ):
        assert text in replica
    for text in ("http://10.0.0.1/team-a/chat-eu-0", "stable (weight 90"):
        assert text in service


async def test_texts_of_users_are_not_parsed_as_html(browser: Browser) -> None:
    fleet = a_fleet()
    named = a_service("odd")
    named["status"] |= {
        "address": MARKUP,
        "entries": [{"name": MARKUP}],
        "endpoints": [{"name": MARKUP, "url": f"javascript:{MARKUP}"}],
    }
    put(
        fleet,
        named,
        a_replica(
            "odd-0",
            MARKUP,
            MARKUP,
            phase=MARKUP,
            conditions=[condition("False", MARKUP, MARKUP)],
        ),
    )
    async with opened(browser, fleet) as tab:
        shown = await tab.text("main")
        for view in ("ModelService/team-a/odd", "ModelReplica/team-a/odd-0"):
            await tab.value(f"location.hash = '#/{view}'")
            await shows(tab, view.partition("/")[2], "#detail-title")
            shown += await tab.text("#detail")
        assert shown.count("<img src=x onerror=") >= 6
        assert (
            await tab.value(
                "document.querySelectorAll("
                "'main img, main script, #detail img, #detail script, body [onerror], "
                "a[href^=javascript]').length"
            )
            == 0
        )
        assert await tab.value("document.title") == "Fleet: Modelplane"


async def test_a_script_in_a_text_would_not_run_even_if_it_were_read_as_html(
    browser: Browser,
) -> None:
    async with served(a_fleet()) as url, browser.tab(url) as tab:
        await shows(tab, CONNECTED)
        refused = await tab.value(
            "(() => { try { document.body.innerHTML = '<b>x</b>'; return ''; } "
            "catch (e) { return e.name; } })()"
        )
        assert refused == "TypeError"


async def test_a_change_is_shown_within_a_second(browser: Browser) -> None:
    fleet = a_fleet()
    async with opened(browser, fleet) as tab:
        seconds = []
        for number in range(1, 6):
            waited = asyncio.create_task(shows(tab, f"{number} of 7 replicas Ready"))
            began = time.monotonic()
            put(
                fleet,
                a_deployment("chat", wanted=7, ready=number, version=START + number),
            )
            await waited
            seconds.append(time.monotonic() - began)
        assert sorted(seconds)[2] < 1, seconds
        fleet.remove(ObjectKey("ModelService", "team-a", "chat"), START + 100)
        await shows(tab, "No services.", "#services-notes")


async def test_only_changes_are_announced_to_screen_readers(browser: Browser) -> None:
    fleet = a_fleet()
    async with opened(browser, fleet) as tab:
        assert (
            await tab.value(
                "[...document.querySelectorAll('[role=status], [aria-live]')]"
                ".map((e) => e.id).join()"
            )
            == "connection,news"
        )
        assert await tab.text("#news") == ""
        put(
            fleet,
            a_deployment("chat", version=START + 1),
            an_object("ModelService", "new", "team-a"),
        )
        fleet.remove(ObjectKey("ModelService", "team-a", "chat"), START + 2)
        await shows(tab, bool, "#news")
        told = await tab.text("#news")
    assert told == (
        "Deployment team-a/chat: Ready. Service team-a/new is new: Not ready. "
        "Service team-a/chat is gone."
    )


async def test_everything_is_reachable_by_keyboard_and_the_focus_is_visible_and_kept(
    browser: Browser,
) -> None:
    fleet = a_fleet()
    async with opened(browser, fleet) as tab:
        order = []
        for _ in range(10):
            await tab.press("Tab")
            order.append(await tab.focused())
            style = await tab.value(
                "(s => s.outlineStyle + ' ' + s.outlineWidth)"
                "(getComputedStyle(document.activeElement))"
            )
            assert style == "solid 3px", order
        assert order[:6] == [
            "Skip to the fleet",
            "search",
            "unready",
            "theme",
            "Access",
            "problems",
        ]
        assert order[6:] == ["us", "team-a/chat", "team-a/code", "team-a/old-eu-0"]
        for expected in ("clusters", "▾ no region", "eu"):
            await tab.press("Tab")
            assert await tab.focused() == expected
        # Changes before and around the focused element do not move the focus.
        put(fleet, a_cluster("aa"), a_replica("aa-0", "chat", "eu"))
        await shows(tab, "3 used, 1 held, 0 free", "#clusters")
        fleet.remove(ObjectKey("InferenceCluster", "", "aa"), START + 9)
        await shows(tab, lambda text: "aa" not in text, "#clusters")
        assert await tab.focused() == "eu"
        await tab.press("ArrowDown")
        assert await tab.focused() == "us"
        # Enter opens the object, and Escape returns to its row.
        await tab.press("Enter")
        await shows(tab, "Conditions", "#detail")
        assert await tab.focused() == "detail-title"
        await tab.press("Escape")
        assert await tab.focused() == "us"
        await tab.press("/")
        assert await tab.focused() == "search"
        await tab.press("Tab", shift=True)
        assert await tab.focused() == "Skip to the fleet"
        await tab.press("Enter")
        assert await tab.value("document.activeElement.id") == "fleet"
        # Everything that works with a mouse also works with the keyboard.
        assert (
            await tab.value(
                "document.querySelectorAll('[onclick], [role=button], "
                "[tabindex]:not(main, .list, .wide, pre, #detail-title)').length"
            )
            == 0
        )


async def test_screen_readers_find_landmarks_headings_names_and_texts_for_cells(
    browser: Browser,
) -> None:
    async with opened(browser, a_fleet()) as tab:
        nodes = (await tab.call("Accessibility.getFullAXTree"))["nodes"]
        levels = await tab.value(
            "[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map((e) => Number(e.tagName[1]))"
        )
        doubled = await tab.value(
            "(ids => ids.length - new Set(ids).size)"
            "([...document.querySelectorAll('[id]')].map((e) => e.id))"
        )
        language = await tab.value("document.documentElement.lang")
        cells = await tab.value(
            "[...document.querySelectorAll('#clusters svg')].map((e) => e.ariaLabel)"
        )
    seen: dict[str, list[str]] = {}
    for node in nodes:
        if not node.get("ignored"):
            seen.setdefault(node["role"]["value"], []).append(
                node.get("name", {}).get("value", "")
            )
    assert {"banner", "main", "search", "region", "status"} <= set(seen)
    assert seen["region"] == [
        "Problems",
        "Clusters",
        "Quotas and queues",
        "Services",
        "Deployments",
        "Caches, classes, gateways, endpoints",
        "Events",
    ]
    controls = {
        role: seen.get(role, []) for role in ("button", "searchbox", "checkbox", "link")
    }
    assert all(names and all(names) for names in controls.values()), controls
    # A link's accessible name makes sense without its context.
    assert len(set(seen["link"])) > 5
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels)), levels
    assert (doubled, language) == (0, "en")
    assert cells[1] == "Pool gpus of eu: 2 used, 1 held, 1 free nodes"


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_phone_shows_one_column_without_horizontal_scrolling(
    browser: Browser, scheme: str
) -> None:
    async with opened(
        browser, a_fleet(), width=390, prefers_color_scheme=scheme
    ) as tab:
        assert await tab.value("document.documentElement.scrollWidth") <= 390
        lefts = await tab.value(
            "[...document.querySelectorAll('section')].map((e) => e.getBoundingClientRect().left)"
        )
        assert len(set(lefts)) == 1
        heights = await tab.value(
            "[...document.querySelectorAll('header input:not([type=checkbox]), header button')]"
            ".map((e) => e.getBoundingClientRect().height).filter(Boolean)"
        )
        assert min(heights) >= 40
        ground = await tab.value("getComputedStyle(document.body).backgroundColor")
        assert ground == (
            "rgb(255, 255, 255)" if scheme == "light" else "rgb(17, 21, 27)"
        )
        await tab.resize(1920)
        lefts = await tab.value(
            "[...document.querySelectorAll('section')].map((e) => e.getBoundingClientRect().left)"
        )
        assert len(set(lefts)) > 1


async def test_nothing_moves(browser: Browser) -> None:
    moving = (
        "[...document.querySelectorAll('*')].filter((e) => "
        "parseFloat(getComputedStyle(e).transitionDuration) > 0).length"
    )
    async with opened(browser, a_fleet()) as tab:
        assert await tab.value(moving) == 0


async def test_a_user_sees_readable_objects_and_an_explanation_for_the_rest(
    browser: Browser, rules: AccessRules
) -> None:
    fleet = a_fleet()
    put(fleet, an_object("ModelDeployment", "other", "team-b", spec={"replicas": 1}))
    async with served(fleet, rules) as url, browser.tab(url) as tab:
        await shows(
            tab,
            "The server rejected this token (401). Paste another token and choose Connect.",
            "#connection",
        )
        await enter(tab, "token", TOKENS["alice"])
        await shows(
            tab,
            "If you have rights in one namespace only, enter it above.",
            "section:has(#deployments)",
        )
        await enter(tab, "namespace", "team-a")
        await shows(tab, "team-a/code", "#deployments")
        await shows(
            tab,
            'User "alice" cannot list resource "inferenceclusters"',
            "section:has(#clusters)",
        )
        await shows(
            tab,
            "Connected. This token lacks the right to read some of the sections below.",
            "#connection",
        )
        assert "team-b" not in await tab.text()
        await enter(tab, "token", "unknown")
        await shows(tab, "The server rejected this token (401)", "#connection")
        # The objects of the previous token are gone.
        assert "team-a/code" not in await tab.text("main")
        await enter(tab, "token", "ü")
        await shows(tab, "This is not a valid token", "#connection")
        await enter(tab, "token", TOKENS["admin"])
        await enter(tab, "namespace", "")
        await shows(tab, "team-b/other", "#deployments")
        await shows(tab, "gpus h100-8x", "#clusters")


async def test_the_token_is_kept_in_the_tab_only_and_can_be_forgotten(
    browser: Browser, rules: AccessRules
) -> None:
    kept = (
        "JSON.stringify([sessionStorage.getItem('modelplane-token'), "
        "localStorage.length, document.cookie, location.href.length])"
    )
    async with served(a_fleet(), rules) as url, browser.tab(url) as tab:
        await shows(tab, "401", "#connection")
        await enter(tab, "token", TOKENS["admin"])
        await shows(tab, CONNECTED)
        await tab.call("Page.reload")
        await shows(tab, "team-a/code", "#deployments")
        assert await tab.value(kept) == f'["{TOKENS["admin"]}",0,"",{len(url)}]'
        assert TOKENS["admin"] not in await tab.value(
            "document.documentElement.outerHTML"
        )
        await tab.value("document.getElementById('forget').click()")
        await shows(tab, "401", "#connection")
        assert await tab.value(kept) == f'[null,0,"",{len(url)}]'
        assert "team-a/code" not in await tab.text("main")


@pytest.mark.parametrize("address", ["", "javascript:alert(1)"])
async def test_without_an_address_of_the_temporal_ui_there_are_no_links(
    browser: Browser, address: str
) -> None:
    links = {"temporalUi": address, "temporalNamespace": "fleet"}
    async with (
        served(a_fleet(), links=links) as url,
        browser.tab(f"{url}#/InferenceCluster/eu") as tab,
    ):
        await shows(tab, "Conditions", "#detail")
        assert (
            await tab.value("document.querySelectorAll('a:not([href^=\"#\"])').length")
            == 0
        )


async def test_links_lead_to_the_workflow_of_the_object(browser: Browser) -> None:
    start = "https://temporal.example/namespaces/fleet/workflows/"
    async with opened(browser, a_fleet(), view="#/ModelService/team-a/chat") as tab:
        await shows(tab, "workflow", "#detail")
        links: Any = await tab.value(
            "[...document.querySelectorAll('a:not([href^=\"#\"])')].map((e) => e.href)"
        )
    assert links == [f"{start}modelservice%2Fteam-a%2Fchat"]
