"""Traffic of services and queues of deployments on the page, in a real browser."""

from typing import Any

import pytest

from api_types.clock import utc_now
from front.scaling.numbers import Numbers
from front.store.projection import ObjectKey
from tests.client.fleetfiles import a_class, a_deployment
from tests.client.planning.test_live_plan import published, stored
from tests.front.browser import Browser
from tests.front.page_states import ShownState, healthy
from tests.front.scheduled_fleet import scheduled
from tests.front.shown_page import opened, shows
from tests.front.test_page_traffic import FakePrometheus

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CHAT = "#/ModelService/team-a/chat"


async def test_a_service_shows_its_traffic_and_the_share_of_each_endpoint(
    browser: Browser,
) -> None:
    state = healthy()
    async with FakePrometheus().served() as url:
        state.prometheus = url
        async with opened(browser, state, view=CHAT) as tab:
            await shows(tab, "requests/s", "#services")
            row = await tab.text("#services")
            detail = await tab.text("#detail")
            note = await tab.text("#traffic-note")
    numbers = "0 requests/s, 2 retries/s, half within 3 ms, 99% within 4 ms, 5 ejected"
    assert numbers in row
    assert numbers in detail
    assert "chat-eu-0\teu\t100%" in detail
    assert note == ""


async def test_without_prometheus_the_page_says_how_to_configure_it(
    browser: Browser,
) -> None:
    async with opened(browser, healthy(), view=CHAT) as tab:
        await shows(tab, "Set front.prometheusUrl", "#traffic-note")
        await shows(tab, "no Prometheus is configured", "#detail")
        assert "requests/s" not in await tab.text("#services")


async def test_a_prometheus_that_does_not_answer_is_named(browser: Browser) -> None:
    state = healthy()
    state.prometheus = "http://127.0.0.1:1"
    async with opened(browser, state, view=CHAT) as tab:
        await shows(tab, "Traffic cannot be read from Prometheus", "#traffic-note")
        await shows(tab, "only Envoy counts requests", "#detail")


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        (None, ""),
        ({"requestsPerSecond": 0}, "0 requests/s"),
        (
            {"requestsPerSecond": 12.34, "errorsPerSecond": 0.617},
            "12 requests/s, 5% errors",
        ),
        (
            {"requestsPerSecond": 1, "p50Milliseconds": 80.4, "p99Milliseconds": 912},
            "1 requests/s, 0% errors, half within 80 ms, 99% within 912 ms",
        ),
    ],
)
async def test_traffic_in_words(browser: Browser, numbers: Any, text: str) -> None:
    async with opened(browser, healthy()) as tab:
        assert (
            await tab.ask_module(
                "traffic.js", "m.trafficText(a[0] ?? undefined)", numbers
            )
            == text
        )


async def test_a_deployment_shows_the_queue_that_autoscalers_read(
    browser: Browser,
) -> None:
    chat = stored(a_deployment("chat", 1))
    fleet = scheduled(a_class(), published("eu", ("h200", 2)), chat)
    state = ShownState(fleet.projection, plane=fleet.plane)
    values = {"queueDepth": 3.0, "runningRequests": 12.0}
    state.told.tell(
        ObjectKey("ModelDeployment", "ml", "chat"),
        Numbers("uid-chat", utc_now(), values),
    )
    async with opened(browser, state, view="#/ModelDeployment/ml/chat") as tab:
        await shows(tab, "Queue: 3 requests wait, 12 run; as of", "#detail")
