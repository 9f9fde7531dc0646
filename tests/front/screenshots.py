"""Take pictures of the page in each state and width, for people and for the docs.

`python -m tests.front.screenshots` writes all pictures to build/screenshots, and those
of the documentation to docs/how-to/pictures.
"""

import argparse
import asyncio
import shutil
import tempfile
from itertools import product
from pathlib import Path

from scheduler import offline_fleet, sort_documents
from tests.client.planning.fake_plane import FakePlane
from tests.front.browser import Browser, a_browser
from tests.front.page_states import STATES, ShownState
from tests.front.shown_page import CONNECTED, served, shows

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "how-to" / "pictures"
WIDTHS = (400, 1280, 1920)
# The pictures in the docs, by the name of the file that they are copied from.
IN_DOCS = {
    "silent-cluster-1280-light": "page.png",
    "thousand-clusters-1280-light": "page-large.png",
    "bad-rollout-1280-dark-detail": "page-detail.png",
}
_DETAILS = {"bad-rollout": "#/ModelDeployment/team-a/chat"}


def with_scheduler(state: ShownState) -> ShownState:
    """Let a scheduler answer whose ledger has the replicas of a state."""
    kinds = (
        "InferenceClass",
        "InferenceCluster",
        "ModelDeployment",
        "ModelReplica",
    )
    trees = [
        stored.tree
        for kind in kinds
        for stored in state.projection.of_kind(kind).values()
    ]
    fleet = offline_fleet(sort_documents(trees))
    for entry in list(fleet.entries()):
        fleet.bind(entry.uid)
    # A large ledger is read in one page, as from a scheduler.
    state.plane = FakePlane(fleet, page=len(trees))
    return state


async def take(folder: Path, names: list[str]) -> None:
    """Write the pictures of the states with these names."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        async with a_browser(Path(profile)) as browser:
            for name in names:
                await _take_state(browser, folder, name)


async def _take_state(browser: Browser, folder: Path, name: str) -> None:
    state = with_scheduler(STATES[name]())
    views = {"": "", "-detail": _DETAILS.get(name, "")}
    temporal = "silent" if state.temporal_silent else "answers"
    async with served(state, samples=4) as url:
        for suffix, scheme, width in product(views, ("light", "dark"), WIDTHS):
            if suffix and not views[suffix]:
                continue
            address = url + views[suffix]
            async with browser.tab(address, width, prefers_color_scheme=scheme) as tab:
                await shows(tab, CONNECTED, "#connection")
                await shows(tab, lambda text: "Not loaded yet" not in text, "main")
                await shows(tab, temporal, "#health")
                if suffix:
                    await shows(tab, "Why there", "#detail")
                await tab.screenshot(folder / f"{name}-{width}-{scheme}{suffix}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(STATES), help="states")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "screenshots")
    options = parser.parse_args()
    asyncio.run(take(options.folder, options.names))
    PICTURES.mkdir(parents=True, exist_ok=True)
    for source, target in IN_DOCS.items():
        file = options.folder / f"{source}.png"
        if file.exists():
            shutil.copy(file, PICTURES / target)


if __name__ == "__main__":
    main()
