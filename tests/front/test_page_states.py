"""The page in each state that it must explain, and its readability in both themes."""

import pytest

from tests.front.axe.script import findings
from tests.front.browser import Browser
from tests.front.page_states import STATES, a_version, silent_cluster, thousand_clusters
from tests.front.shown_fleet import START, a_cluster, put
from tests.front.shown_page import opened, served, shows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WIDTHS = (400, 1280, 1920)
PAGE_HEIGHT_MAX = 2_900
CLUSTER = "#/InferenceCluster/us"


@pytest.mark.parametrize("name", STATES)
async def test_a_state_is_explained_by_its_problems(
    browser: Browser, name: str
) -> None:
    state = STATES[name]()
    async with opened(browser, state) as tab:
        for text in state.expected:
            await shows(tab, text, "#problems")
        if not state.expected:
            await shows(tab, "No problems.", "#problems-notes")
        problems = await tab.text("#problems")
        red = await tab.value("document.querySelectorAll('.problem.person').length")
        # The page of a large fleet is as short.
        heights = []
        for width in WIDTHS:
            await tab.resize(width)
            heights.append(await tab.value("document.documentElement.scrollHeight"))
            assert await tab.value("document.documentElement.scrollWidth") <= width
    assert not [text for text in state.absent if text in problems]
    assert red == (1 if state.expected else 0)
    assert max(heights) <= PAGE_HEIGHT_MAX, heights


async def test_the_capacity_of_a_drained_and_of_a_silent_cluster_is_not_free(
    browser: Browser,
) -> None:
    expected = {
        "drained": ["Drained", "1 used, 0 held, 0 free, 3 draining"],
        "silent-cluster": ["Silent", "1 used, 0 held, 0 free, 3 silent (last known)"],
    }
    for name, texts in expected.items():
        async with opened(browser, STATES[name]()) as tab:
            shown = await tab.text("#clusters")
            assert [text for text in texts if text not in shown] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", ["", CLUSTER])
async def test_axe_finds_no_problem(browser: Browser, scheme: str, view: str) -> None:
    async with opened(
        browser, silent_cluster(), view=view, prefers_color_scheme=scheme
    ) as tab:
        await tab.value("document.getElementById('access-box').open = true")
        assert await findings(tab) == []


async def test_the_button_changes_the_theme_for_this_tab(browser: Browser) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    async with opened(browser, silent_cluster(), prefers_color_scheme="light") as tab:
        assert await tab.value(ground) == "rgb(255, 255, 255)"
        await tab.value("document.getElementById('theme').click()")
        assert await tab.value(ground) == "rgb(17, 21, 27)"
        await tab.call("Page.reload")
        await shows(tab, "Light", "#theme")
        assert await tab.value(ground) == "rgb(17, 21, 27)"


async def test_a_thousand_clusters_are_regions_and_few_elements(
    browser: Browser,
) -> None:
    state = thousand_clusters()
    async with opened(browser, state) as tab:
        regions = await tab.text("#clusters")
        elements = await tab.value("document.querySelectorAll('*').length")
        await tab.value("document.querySelector('[data-region]').click()")
        await shows(tab, "c0010", "#clusters")
        # Rows beyond the view are made when a reader scrolls to them.
        await tab.value("document.getElementById('clusters').scrollTop = 2000")
        await shows(tab, "c0400", "#clusters")
        count = await tab.value("document.querySelectorAll('#clusters li').length")
    assert "100 clusters, 1 not Ready" in regions
    assert "300 used, 0 held, 1300 free" in regions
    assert (elements < 1_500, count < 40) == (True, True), (elements, count)


async def test_the_detail_view_of_a_bad_rollout_shows_its_cause(
    browser: Browser,
) -> None:
    view = "#/ModelDeployment/team-a/chat"
    async with opened(browser, STATES["bad-rollout"](), view=view) as tab:
        await shows(tab, "ImagePullBackOff: vllm:typo", "#detail .cause")


async def test_a_search_is_part_of_the_address(browser: Browser) -> None:
    state = thousand_clusters(100, 2)
    async with opened(browser, state) as tab:
        await tab.value("document.getElementById('search').focus()")
        await tab.type("region-7 c0017")
        await shows(
            tab, lambda text: "c0017" in text and "c0027" not in text, "#clusters"
        )
        address = await tab.value("location.hash")
        await tab.value("document.getElementById('unready').click()")
        await shows(tab, "Nothing matches the search.", "#clusters-notes")
    assert address == "#?q=region-7+c0017"
    async with opened(browser, state, view=address) as tab:
        await shows(tab, "c0017", "#clusters")
        assert "c0027" not in await tab.text("#clusters")


async def test_history_and_events_are_shown_with_their_ages(browser: Browser) -> None:
    state = STATES["healthy"]()
    async with served(state, samples=3) as url, browser.tab(url) as tab:
        await shows(tab, "ReplicaPlaced: chat-eu-0 on eu: most free nodes", "#events")
        await shows(tab, "answers", "#health")
        labels = await tab.value(
            "[...document.querySelectorAll('#summary svg')].map((e) => e.ariaLabel)"
        )
        events = await tab.text("#events")
    assert labels == [
        "Charged nodes over 0.0 h",
        "Ready replicas over 0.0 h",
        "Seconds of the longest wait over 0.0 h",
    ]
    assert " ago" in events


async def test_a_silent_cluster_that_answers_again_is_no_problem(
    browser: Browser,
) -> None:
    state = silent_cluster()
    async with opened(browser, state, view=CLUSTER) as tab:
        await shows(tab, "the API server does not answer", "#detail")
        cluster = a_cluster("us")
        cluster["metadata"]["resourceVersion"] = str(a_version(1))
        put(state.projection, cluster)
        await shows(tab, "No problem is reported.", "#detail")
        assert a_version(0) == START
