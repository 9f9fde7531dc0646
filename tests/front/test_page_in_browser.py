"""The page in a real browser, with a front whose objects the test controls."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp.test_utils import TestServer

from fleet_client.temporal.control_plane import ControlPlane
from front.access.access import AccessControl
from front.access.access_file import AccessRules
from front.serving.app import Front
from front.store.projection import ObjectKey, Projection
from tests.front.browser import Browser, Tab
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
from tests.workflows.environment.harness import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CONNECTED = "Connected: changes appear as they happen."
LINKS = {"temporalUi": "https://temporal.example/", "temporalNamespace": "fleet"}


@asynccontextmanager
async def served(
    projection: Projection, rules: AccessRules | None = None, **settings: str
) -> AsyncIterator[str]:
    front = Front(
        cast("ControlPlane", None), projection, AccessControl(rules), settings or LINKS
    )
    server = TestServer(front.app())
    await server.start_server()
    try:
        yield f"http://127.0.0.1:{server.port}/"
    finally:
        await server.close()


@asynccontextmanager
async def opened(
    browser: Browser, projection: Projection, width: int = 1280, **features: str
) -> AsyncIterator[Tab]:
    async with served(projection) as url, browser.tab(url, width, **features) as tab:
        await shows(tab, CONNECTED, "#connection")
        yield tab
        assert tab.problems == []


async def shows(
    tab: Tab, text: str | Callable[[str], bool], selector: str = "body"
) -> None:
    accepted = text if callable(text) else lambda shown: text in shown
    await eventually(
        lambda: tab.text(selector),
        accepted,
        what=f"{text} in {selector}",
        longest_pause=0.05,
        within=30,
    )


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
        clusters, deployments, services = [
            await tab.text(f"#{name}")
            for name in ("clusters", "deployments", "services")
        ]
    for text in (
        "4 nodes with 8 GPUs each (h100-8x); 14 of 32 GPUs in use",
        "4 nodes exist, 4 are Ready, 4 accept new pods",
        "Unreachable: the API server does not answer",
        "team-a/chat-us-0: 3 pods, 24 GPUs",
        "and 44 more nodes",
    ):
        assert text in clusters
    for text in (
        "2 of 3 replicas Ready, 3 placed",
        "1 of 3 replicas have the newest template, 1 of them are Ready",
        "NoCapacity: pool gpus of us: 0 nodes free, 2 needed",
        "Starting: engine main loads",
        "step 2 of 2: delete workloads; since 2026-01-01T10:00:00Z",
        "waits for apps/v1 Deployment x (a finalizer)",
    ):
        assert text in deployments
    for text in (
        "http://10.0.0.1/team-a/chat",
        "1 of 2 Ready",
        "chat-eu-0 on eu, weight 90",
    ):
        assert text in services


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
        assert (await tab.text("main")).count("<img src=x onerror=") >= 6
        assert (
            await tab.value(
                "document.querySelectorAll("
                "'main img, main script, main [onerror], a[href^=javascript]').length"
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
        await shows(tab, "No services.", "#services")


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
        for _ in range(7):
            await tab.press("Tab")
            order.append(await tab.focused())
            style = await tab.value(
                "(s => s.outlineStyle + ' ' + s.outlineWidth)"
                "(getComputedStyle(document.activeElement))"
            )
            assert style == "solid 3px", order
        assert order[:5] == [
            "Skip to the fleet",
            "token",
            "namespace",
            "Connect",
            "forget",
        ]
        assert order[5:] == [
            "workflow of eu in the Temporal UI",
            "workflow of team-a/chat-eu-0 in the Temporal UI",
        ]
        # Changes before and around the focused element do not move the focus.
        put(fleet, a_cluster("aa"), a_replica("aa-0", "chat", "eu"))
        await shows(tab, "team-a/aa-0: 1 pod")
        fleet.remove(ObjectKey("InferenceCluster", "", "aa"), START + 9)
        await shows(tab, lambda text: text.startswith("eu"), "#clusters h3")
        assert (
            await tab.value("document.activeElement.closest('article')?.dataset.key")
            == "eu"
        )
        for _ in range(6):
            await tab.press("Tab", shift=True)
        assert await tab.focused() == "Skip to the fleet"
        await tab.press("Enter")
        assert await tab.focused() != "Skip to the fleet"
        assert await tab.value("document.activeElement.id") == "fleet"
        # Everything that works with a mouse also works with the keyboard.
        assert (
            await tab.value(
                "document.querySelectorAll('[onclick], [tabindex]:not(main), [role=button]').length"
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
            "[...document.querySelectorAll('#clusters .cells > li')].map((e) => e.textContent)"
        )
    seen: dict[str, list[str]] = {}
    for node in nodes:
        if not node.get("ignored"):
            seen.setdefault(node["role"]["value"], []).append(
                node.get("name", {}).get("value", "")
            )
    assert {"banner", "main", "form", "region", "status"} <= set(seen)
    assert seen["region"] == ["Clusters", "Deployments", "Services"]
    controls = {
        role: seen.get(role, [])
        for role in ("button", "textbox", "link", "progressbar", "form")
    }
    assert all(names and all(names) for names in controls.values()), controls
    # A link's accessible name makes sense without its context.
    assert len(set(seen["link"])) > 5
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels)), levels
    assert (doubled, language) == (0, "en")
    assert cells[:4] == [
        "A8 of 8 GPUs: team-a/chat-eu-0",
        "B2 of 8 GPUs: team-a/chat-eu-1",
        "C4 of 8 GPUs: team-a/old-eu-0",
        "1 free nodes",
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_phone_shows_one_column_without_horizontal_scrolling(
    browser: Browser, scheme: str
) -> None:
    async with opened(
        browser, a_fleet(), width=390, prefers_color_scheme=scheme
    ) as tab:
        assert await tab.value("document.documentElement.scrollWidth") <= 390
        lefts = await tab.value(
            "[...document.querySelectorAll('article')].map((e) => e.getBoundingClientRect().left)"
        )
        assert len(set(lefts)) == 1
        heights = await tab.value(
            "[...document.querySelectorAll('input, button')]"
            ".map((e) => e.getBoundingClientRect().height)"
        )
        assert min(heights) >= 40
        ground = await tab.value("getComputedStyle(document.body).backgroundColor")
        assert ground == (
            "rgb(255, 255, 255)" if scheme == "light" else "rgb(17, 21, 27)"
        )
        await tab.resize(1280)
        lefts = await tab.value(
            "[...document.querySelectorAll('article')].map((e) => e.getBoundingClientRect().left)"
        )
        assert len(set(lefts)) > 1


async def test_nothing_moves_with_reduced_motion(browser: Browser) -> None:
    moving = (
        "[...document.querySelectorAll('*')].filter((e) => "
        "parseFloat(getComputedStyle(e).transitionDuration) > 0).length"
    )
    async with opened(browser, a_fleet(), prefers_reduced_motion="reduce") as tab:
        assert await tab.value(moving) == 0
    async with opened(
        browser, a_fleet(), prefers_reduced_motion="no-preference"
    ) as tab:
        assert await tab.value(moving) > 0


async def enter(tab: Tab, field: str, text: str) -> None:
    await tab.value(
        f"(e => {{ e.focus(); e.select(); }})(document.getElementById('{field}'))"
    )
    await tab.press("Delete")
    await tab.type(text)
    await tab.press("Enter")


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
            "#deployments",
        )
        await enter(tab, "namespace", "team-a")
        await shows(tab, "team-a/code", "#deployments")
        await shows(
            tab, 'User "alice" cannot list resource "inferenceclusters"', "#clusters"
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
        await shows(tab, "Pool gpus", "#clusters")


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
    async with (
        served(a_fleet(), temporalUi=address, temporalNamespace="fleet") as url,
        browser.tab(url) as tab,
    ):
        await shows(tab, "team-a/code")
        assert await tab.value("document.querySelectorAll('main a').length") == 0


async def test_links_lead_to_the_workflow_of_the_object(browser: Browser) -> None:
    async with opened(browser, a_fleet()) as tab:
        await shows(tab, "workflow", "main")
        links: Any = await tab.value(
            "[...document.querySelectorAll('main a')].map((e) => e.href)"
        )
    start = "https://temporal.example/namespaces/fleet/workflows/"
    assert {
        f"{start}{kind}%2F{name}"
        for kind, name in (
            ("inferencecluster", "eu"),
            ("modelservice", "team-a%2Fchat"),
        )
    } <= set(links)
    assert all(link.startswith(start) for link in links)
