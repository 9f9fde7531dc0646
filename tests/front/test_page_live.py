"""The page with a real control plane: placements, changes, restarts, deletions."""

from pathlib import Path

import pytest

from tests.front.browser import Browser
from tests.front.front_under_test import DEPLOYMENTS, TOKENS, FrontUnderTest, a_front
from tests.front.shown_fleet import MARKUP
from tests.front.shown_page import CONNECTED, enter, shows
from tests.workflows.environment.harness import a_deployment, eventually

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.timeout(900)]

NAMESPACE = "page"
PATH = DEPLOYMENTS.format(NAMESPACE)
MERGE = {"Content-Type": "application/merge-patch+json"}


async def test_placements_changes_and_deletions_appear_at_once_and_across_a_restart(
    browser: Browser, front: FrontUnderTest, tmp_path: Path
) -> None:
    async with a_front(front.plane, tmp_path) as mine, browser.tab(mine.url) as tab:
        await shows(tab, "rejected this token", "#connection")
        await enter(tab, "token", TOKENS["admin"])
        await shows(tab, CONNECTED, "#connection")
        document = a_deployment("seen", NAMESPACE, replicas=2, gpus=8)
        document["metadata"]["annotations"] = {"note": MARKUP}
        status, created = await mine.ask("POST", PATH, document)
        assert status == 201, created
        await shows(tab, "2 of 2 replicas Ready, 2 placed", "#deployments")
        # `modelplane top clusters` shows the same charge for the two nodes.
        await shows(tab, "2 used, 0 held, 98 free", "#clusters")
        health = ["Temporal", "answers", "Workers", "answer"]
        await shows(tab, lambda text: text.split()[:4] == health, "#health")

        # The watch delivers the change. A page without a watch would only show it when
        # it lists again, after minutes.
        for replicas in (3, 1):
            await mine.ask(
                "PATCH", f"{PATH}/seen", {"spec": {"replicas": replicas}}, **MERGE
            )

            async def placed() -> int:
                return int(
                    (await mine.ask("GET", f"{PATH}/seen"))[1]["status"]["replicas"][
                        "ready"
                    ]
                )

            await eventually(
                placed,
                lambda found, wanted=replicas: found == wanted,  # type: ignore[misc]
                what="the replicas",
                longest_pause=0.05,
            )
            await shows(tab, f"{replicas} of {replicas} replicas Ready", "#deployments")

        await mine.shut_down()
        await shows(tab, "Not connected since", "#connection")
        # The last known state stays visible, and later changes appear afterwards.
        assert f"{NAMESPACE}/seen" in await tab.text("#deployments")
        await front.ask("PATCH", f"{PATH}/seen", {"spec": {"replicas": 2}}, **MERGE)
        await mine.start()
        await shows(tab, CONNECTED, "#connection")
        await shows(tab, "2 of 2 replicas Ready", "#deployments")

        await mine.ask("DELETE", f"{PATH}/seen")
        await shows(tab, lambda text: f"{NAMESPACE}/seen" not in text, "main")
        assert tab.problems == []
