"""A front with a page whose objects and health the test controls."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NoReturn, cast

from aiohttp.test_utils import TestServer

from api_types.clock import now_ms
from fleet_client.errors import NoAnswer
from fleet_client.temporal.control_plane import ControlPlane
from front.access.access import AccessControl
from front.access.access_file import AccessRules
from front.page_data.health import ControlPlaneHealth
from front.page_data.placement import PlacementData
from front.page_data.prometheus import Traffic
from front.page_data.routes import PageData
from front.page_data.traffic import TrafficData
from front.scaling.routes import Scaling
from front.serving.app import Front
from front.store.projection import Projection
from tests.front.browser import Browser, Tab
from tests.front.page_states import ShownState, health_of
from tests.workflows.environment.harness import eventually

CONNECTED = "Connected: changes appear as they happen."
LINKS = {"temporalUi": "https://temporal.example/", "temporalNamespace": "fleet"}


class ShownHealth:
    """The health of a control plane that a test describes."""

    def __init__(self, state: ShownState) -> None:
        self._state = state

    async def observe(self) -> None:
        """Do nothing: the state is given."""

    def tree(self) -> dict[str, Any]:
        return health_of(self._state, now_ms())


class SilentPlane:
    """A control plane without workers."""

    async def query(self, *_: object) -> NoReturn:
        raise NoAnswer("no worker answers", next_step="start one")


@asynccontextmanager
async def served(
    shown: Projection | ShownState,
    rules: AccessRules | None = None,
    links: Mapping[str, str] = LINKS,
    samples: int = 0,
) -> AsyncIterator[str]:
    """Serve a fleet, with `samples` samples of history; yield the address."""
    state = shown if isinstance(shown, ShownState) else ShownState(shown)
    plane = cast("ControlPlane", state.plane or SilentPlane())
    front = Front(plane, state.projection, AccessControl(rules), links)
    data = PageData(front, cast("ControlPlaneHealth", ShownHealth(state)))
    for _ in range(samples):
        data.history.sample()
    routes = [
        *data.routes(),
        *PlacementData(front).routes(),
        *TrafficData(front, Traffic(state.prometheus)).routes(),
        *Scaling(front, state.told, None).routes(),
    ]
    server = TestServer(front.app(routes))
    await server.start_server()
    try:
        yield f"http://127.0.0.1:{server.port}/"
    finally:
        await server.close()


@asynccontextmanager
async def opened(
    browser: Browser,
    shown: Projection | ShownState,
    width: int = 1280,
    view: str = "",
    **features: str,
) -> AsyncIterator[Tab]:
    """Open the page, and wait until it has read everything."""
    async with (
        served(shown) as url,
        browser.tab(f"{url}{view}", width, **features) as tab,
    ):
        await shows(tab, CONNECTED, "#connection")
        await shows(tab, lambda text: "Not loaded yet" not in text, "main")
        yield tab
        assert tab.problems == []


async def shows(
    tab: Tab, text: str | Callable[[str], bool], selector: str = "body"
) -> None:
    """Wait until an element shows a text, or a text that the function accepts."""
    accepted = text if callable(text) else lambda shown: text in shown
    await eventually(
        lambda: tab.text(selector),
        accepted,
        what=f"{text} in {selector}",
        longest_pause=0.05,
        within=120,
    )


async def enter(tab: Tab, field: str, text: str) -> None:
    """Replace the text of an input of the form, and submit it."""
    await tab.value(
        "document.getElementById('access-box').open = true; "
        f"(e => {{ e.focus(); e.select(); }})(document.getElementById('{field}'))"
    )
    await tab.press("Delete")
    await tab.type(text)
    await tab.press("Enter")
