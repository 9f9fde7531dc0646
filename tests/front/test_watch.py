"""The API behaviour that client-go's reflectors need, over HTTP.

List and watch, resume, restarts, bookmarks, selectors, pages, conflicts.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from front.store.projection import TOMBSTONES_MAX
from tests.front.front_under_test import DEPLOYMENTS, FrontUnderTest, Json, a_front
from tests.workflows.environment.harness import a_deployment, eventually

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.timeout(900)]

SECONDS = 60


class Team:
    """The namespace of one test, whose deployments have no replicas."""

    def __init__(self, front: FrontUnderTest, namespace: str) -> None:
        self.front, self.namespace, self.path = (
            front,
            namespace,
            DEPLOYMENTS.format(namespace),
        )

    def document(self, name: str, **labels: str) -> Json:
        document = a_deployment(name, self.namespace, replicas=0)
        document["metadata"]["labels"] = labels
        return document

    async def create(self, name: str, **labels: str) -> Json:
        status, created = await self.front.ask(
            "POST", self.path, self.document(name, **labels)
        )
        assert status == 201, created
        return dict(created)

    async def change(self, name: str, **labels: str | None) -> Json:
        merge = {"Content-Type": "application/merge-patch+json"}
        status, changed = await self.front.ask(
            "PATCH", f"{self.path}/{name}", {"metadata": {"labels": labels}}, **merge
        )
        assert status == 200, changed
        return dict(changed)

    async def delete(self, name: str) -> None:
        status, answer = await self.front.ask("DELETE", f"{self.path}/{name}")
        assert status == 200, answer

        async def there() -> int:
            return (await self.front.ask("GET", f"{self.path}/{name}"))[0]

        await eventually(there, lambda code: code == 404, what=f"the end of {name}")

    async def listed(self, query: str = "") -> Json:
        status, found = await self.front.ask("GET", self.path + query)
        assert status == 200, found
        return dict(found)

    async def settled(self) -> str:
        """Wait until nothing changes; return the version of the list."""
        versions = [""]

        async def same() -> bool:
            found = await self.listed()
            versions.append(
                str([item["metadata"]["resourceVersion"] for item in found["items"]])
            )
            await asyncio.sleep(1)
            return versions[-1] == versions[-2]

        await eventually(same, bool, what="rest")
        return str((await self.listed())["metadata"]["resourceVersion"])

    async def events(
        self,
        query: str,
        until: Callable[[list[tuple[str, str]]], bool],
        begun: list[str] | None = None,
    ) -> list[Json]:
        """Watch until enough (type, name) pairs have arrived.

        `begun` receives an entry once the watch is answered.
        """
        found: list[Json] = []
        async with asyncio.timeout(SECONDS):
            async for event in self.front.watched(f"{self.path}?{query}", begun=begun):
                found.append(event)
                if until(seen(found)):
                    return found
        raise AssertionError(found)


async def _answered(begun: list[str]) -> bool:
    return bool(begun)


def seen(events: list[Json]) -> list[tuple[str, str]]:
    return [
        (event["type"], event["object"]["metadata"].get("name", "")) for event in events
    ]


async def test_a_watch_reports_each_object_from_the_version_of_a_list(
    front: FrontUnderTest,
) -> None:
    team = Team(front, "from-a-list")
    await team.create("before")
    version = await team.settled()

    async def changes() -> None:
        await eventually(lambda: _answered(watchers), bool, what="the watch")
        await team.create("after")
        await team.change("before", tier="gold")
        await team.delete("after")

    watchers: list[str] = []
    watching = team.events(
        f"resourceVersion={version}",
        lambda pairs: ("DELETED", "after") in pairs,
        watchers,
    )
    found, _ = await asyncio.gather(watching, changes())
    pairs = seen(found)
    assert pairs[0] == ("ADDED", "after")
    assert {name for kind, name in pairs if kind == "DELETED"} == {"after"}
    (changed,) = [
        event["object"] for event in found if seen([event])[0][1] == "before"
    ][-1:]
    assert changed["metadata"]["labels"] == {"tier": "gold"}
    assert {kind for kind, name in pairs if name == "before"} == {"MODIFIED"}
    for name in ("before", "after"):
        versions = [
            int(event["object"]["metadata"]["resourceVersion"])
            for event in found
            if seen([event])[0][1] == name
        ]
        assert versions == sorted(set(versions))
        assert versions[0] > int(version)


async def test_a_watch_resumes_after_a_restart_of_the_front(
    front: FrontUnderTest, tmp_path: Path
) -> None:
    async with a_front(front.plane, tmp_path) as first:
        team = Team(first, "over-a-restart")
        for name in ("changed", "deleted", "kept"):
            await team.create(name)
        version = await team.settled()
        await first.shut_down()
        others = Team(front, "over-a-restart")
        await others.change("changed", tier="gold")
        await others.delete("deleted")
        await others.create("created")
        await first.start()
        wanted = {("DELETED", "deleted"), ("ADDED", "created")}
        query = f"resourceVersion={version}"
        found = await team.events(
            query,
            lambda pairs: (
                wanted <= set(pairs) and "changed" in {name for _, name in pairs}
            ),
        )
        assert [
            event["object"]["metadata"]["labels"]
            for event in found
            if seen([event])[0][1] == "changed"
        ][-1] == {"tier": "gold"}
        listed = await team.listed()
        assert [item["metadata"]["name"] for item in listed["items"]] == [
            "changed",
            "created",
            "kept",
        ]


async def test_a_version_before_the_known_changes_is_expired(
    front: FrontUnderTest,
) -> None:
    team = Team(front, "expired")
    (event,) = await team.events("resourceVersion=1", bool)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == (
        "ERROR",
        410,
        "Expired",
    )
    assert TOMBSTONES_MAX >= 1000


async def test_objects_enter_and_leave_a_selection_by_their_labels(
    front: FrontUnderTest,
) -> None:
    team = Team(front, "selected")
    await team.create("one", tier="gold")
    await team.create("two", tier="silver")
    version = await team.settled()
    query = f"labelSelector={quote('tier=gold')}&resourceVersion={version}"

    async def changes() -> None:
        await team.change("two", tier="gold")
        await team.change("one", tier=None)

    def is_complete(pairs: list[tuple[str, str]]) -> bool:
        """Return whether `one` left and `two` arrived in the end.

        A late status may have changed `two` before its label. Whether another watch had
        selected it is not known then, so it is reported as deleted first.
        """
        last = {name: kind for kind, name in pairs}
        return last.get("one") == "DELETED" and last.get("two") in {"ADDED", "MODIFIED"}

    # A watch may begin before or after the changes; the result is the same.
    await asyncio.gather(team.events(query, is_complete), changes())
    await team.events(query, is_complete)
    listed = await team.listed(f"?labelSelector={quote('tier in (gold)')}")
    assert [item["metadata"]["name"] for item in listed["items"]] == ["two"]


async def test_a_watch_list_starts_with_all_objects_and_marks_their_end(
    front: FrontUnderTest,
) -> None:
    team = Team(front, "watch-list")
    await team.create("one")
    await team.settled()
    query = "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    found = await team.events(query, lambda pairs: pairs[-1][0] == "BOOKMARK")
    assert seen(found) == [("ADDED", "one"), ("BOOKMARK", "")]
    assert found[-1]["object"]["metadata"]["annotations"] == {
        "k8s.io/initial-events-end": "true"
    }
    assert int(found[-1]["object"]["metadata"]["resourceVersion"]) >= int(
        found[0]["object"]["metadata"]["resourceVersion"]
    )


async def test_pages_have_each_object_once_while_others_come_and_go(
    front: FrontUnderTest,
) -> None:
    team = Team(front, "pages")
    names = [f"n{number}" for number in range(5)]
    for name in names:
        await team.create(name)
    await team.settled()
    page = await team.listed("?limit=2")
    assert page["metadata"]["remainingItemCount"] == 3
    first = page["metadata"]["resourceVersion"]
    found = [item["metadata"]["name"] for item in page["items"]]
    await team.create("a-new-one")
    while token := page["metadata"].get("continue"):
        page = await team.listed(f"?limit=2&continue={quote(token)}")
        assert page["metadata"]["resourceVersion"] == first
        found += [item["metadata"]["name"] for item in page["items"]]
    assert found == names
    # A watch from the first page delivers the changes made since.
    assert ("ADDED", "a-new-one") in seen(
        await team.events(
            f"resourceVersion={first}", lambda pairs: ("ADDED", "a-new-one") in pairs
        )
    )


async def test_a_change_of_a_stale_version_is_a_conflict(
    front: FrontUnderTest,
) -> None:
    team = Team(front, "conflicts")
    created = await team.create("one")
    await team.change("one", tier="gold")
    stale = {
        **team.document("one", tier="silver"),
        "metadata": {
            **team.document("one")["metadata"],
            "resourceVersion": created["metadata"]["resourceVersion"],
        },
    }
    status, refusal = await front.ask("PUT", f"{team.path}/one", stale)
    assert (status, refusal["reason"]) == (409, "Conflict")
    stale["metadata"].pop("resourceVersion")
    status, changed = await front.ask("PUT", f"{team.path}/one", stale)
    assert status == 200, changed
    status, refusal = await front.ask(
        "PUT",
        f"{team.path}/one",
        {**stale, "metadata": {**stale["metadata"], "uid": "another"}},
    )
    assert (status, refusal["reason"]) == (409, "Conflict")
    status, refusal = await front.ask("POST", team.path, team.document("one"))
    assert (status, refusal["reason"]) == (409, "AlreadyExists")
    status, refusal = await front.ask(
        "DELETE", f"{team.path}/one", {"preconditions": {"uid": "another"}}
    )
    assert (status, refusal["reason"]) == (409, "Conflict")


async def test_concurrent_writers_of_one_object_lose_nothing(
    front: FrontUnderTest,
) -> None:
    team = Team(front, "at-once")
    await team.create("one")
    await asyncio.gather(
        *(team.change("one", **{f"l{number}": "x"}) for number in range(4))
    )
    (item,) = (await team.listed())["items"]
    assert set(item["metadata"]["labels"]) == {f"l{number}" for number in range(4)}


async def test_an_object_is_complete_when_its_creation_is_answered(
    front: FrontUnderTest,
) -> None:
    created = await Team(front, "whole").create("one")
    metadata = created["metadata"]
    assert metadata["uid"]
    assert metadata["creationTimestamp"]
    assert (metadata["generation"], created["spec"]["replicas"]) == (1, 0)
    status, read = await front.ask("GET", f"{DEPLOYMENTS.format('whole')}/one")
    assert (status, read["metadata"]["uid"]) == (200, metadata["uid"])
