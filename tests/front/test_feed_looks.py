"""The feed's handling of visibility results, unresponsive objects, and concurrent
changes.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from activities.messaging.search_attributes import NAME, NAMESPACE, VERSION
from api_types.clock import utc_now
from api_types.resources.kinds import BY_KIND
from fleet_client.errors import CommandFailed, NoAnswer
from fleet_client.refs.seen import not_found
from fleet_client.refs.targets import Target
from fleet_client.temporal.control_plane import ControlPlane
from front.store import feed
from front.store.feed import GONE_BEFORE_START, Feed
from front.store.projection import LATE_MICROSECONDS, ObjectKey, Projection, Tree
from tests.front.fleet_of_tenants import START, an_object
from tests.workflows.environment.harness import eventually


def key_of(name: str) -> ObjectKey:
    return ObjectKey("ModelDeployment", "a", name)


def a_tree(name: str, version: int, uid: str = "u1") -> Tree:
    tree = an_object(BY_KIND["ModelDeployment"], "a", name, version)
    return {**tree, "metadata": {**tree["metadata"], "uid": uid}}


class VisiblePlane:
    """A control plane as visibility shows it.

    `shown` has the versions of running workflows, `lost` the ones that searches for
    changes miss, `answers` the answer or error of each object, `closed` the end of
    closed workflows. `asked` and `checked` record describe and exists calls, `queries`
    the searches.
    """

    def __init__(self) -> None:
        self.shown, self.closed, self.answers = (
            dict[str, int](),
            dict[str, datetime](),
            dict[str, Tree | Exception](),
        )
        self.lost, self.asked, self.checked, self.queries = (
            set[str](),
            list[str](),
            list[str](),
            list[str](),
        )
        self.go = asyncio.Event()
        self.go.set()

    def have(self, name: str, version: int = START, uid: str = "u1") -> None:
        """Add a running object that answers."""
        self.shown[name], self.answers[name] = version, a_tree(name, version, uid)

    def end(self, name: str, closed: datetime | None = None) -> None:
        """Remove an object. Without `closed`, visibility never reports its end."""
        self.shown.pop(name)
        self.answers.pop(name, None)
        if closed:
            self.closed[name] = closed

    async def rows(self, query: str) -> AsyncIterator[Any]:
        """Return the results of a search."""
        self.queries.append(query)
        if "CloseTime" in query:
            for name, closed in self.closed.items():
                yield _row(name, START, closed)
            return
        after = (
            int(query.rpartition(" ")[2]) if "ModelplaneVersion >" in query else None
        )
        for name, version in self.shown.items():
            if after is None or (version > after and name not in self.lost):
                yield _row(name, version)

    async def describe(self, target: Target) -> Tree:
        self.asked.append(target.name)
        await self.go.wait()
        answer = self.answers.get(target.name, not_found(target))
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def exists(self, target: Target) -> bool:
        self.checked.append(target.name)
        return target.name in self.shown


def _row(name: str, version: int, closed: datetime | None = None) -> Any:
    pairs: list[SearchAttributePair[Any]] = [
        SearchAttributePair(NAME, name),
        SearchAttributePair(NAMESPACE, "a"),
    ]
    attributes = TypedSearchAttributes([*pairs, SearchAttributePair(VERSION, version)])
    began = datetime.fromtimestamp(START / 1e6, UTC)
    return SimpleNamespace(
        workflow_type="ModelDeployment",
        id=f"x/a/{name}",
        typed_search_attributes=attributes,
        close_time=closed,
        start_time=began,
    )


class Following:
    """A feed that polls when the test says so. `told` has known versions by name."""

    def __init__(self) -> None:
        self.plane, self.projection = VisiblePlane(), Projection()
        self.feed = Feed(cast("ControlPlane", self.plane), self.projection)

    async def look(self) -> None:
        """Poll once, and wait for all queries."""
        await self.feed.poll()
        await asyncio.gather(*self.feed._tasks.values(), return_exceptions=True)

    @property
    def told(self) -> dict[str, int]:
        """Return the known objects."""
        return {
            key.name: stored.version
            for key, stored in self.projection.of_kind("ModelDeployment").items()
        }

    @property
    def gone(self) -> set[str]:
        """Return the objects known to be gone."""
        return {key.name for key in self.projection._tombstones}


@pytest.fixture
def following() -> Following:
    return Following()


def silent() -> CommandFailed:
    return NoAnswer("no worker answers", next_step="start one")


# Polls


async def test_only_changed_objects_are_queried(following: Following) -> None:
    for name in ("one", "two"):
        following.plane.have(name)
    await following.look()
    assert sorted(following.plane.asked) == ["one", "two"]
    following.plane.have("two", START + 5)
    for _ in range(2):
        await following.look()
    assert (following.told, following.plane.asked[2:]) == (
        {"one": START, "two": START + 5},
        ["two"],
    )


async def test_a_change_that_searches_miss_is_found_by_the_next_listing(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    following.plane.have("one")
    await following.look()
    following.plane.have("one", START + 5)
    following.plane.lost = {"one"}
    await following.look()
    assert following.told == {"one": START}
    monkeypatch.setattr(feed, "RELIST_SECONDS", 0.0)
    await following.look()
    assert following.told == {"one": START + 5}


async def test_a_single_wrong_clock_hides_no_change_of_others(
    following: Following,
) -> None:
    future = int((utc_now() + timedelta(days=1)).timestamp() * 1e6)
    following.plane.have("ahead", future)
    await following.look()
    now = int(utc_now().timestamp() * 1e6)
    following.plane.have("one", now)
    await following.look()
    assert following.told == {"ahead": future, "one": now}


async def test_an_object_is_not_queried_twice_at_once(following: Following) -> None:
    await following.look()
    following.plane.go.clear()
    following.plane.have("one")
    for _ in range(2):
        await following.feed.poll()
        await asyncio.sleep(0)
    assert following.plane.asked == ["one"]
    following.plane.go.set()
    await following.look()
    assert following.told == {"one": START}


# Unresponsive objects


@pytest.mark.parametrize(
    "failure", [silent(), ZeroDivisionError()], ids=["no worker", "a defect"]
)
async def test_an_unresponsive_object_is_queried_until_it_answers(
    following: Following, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    following.plane.have("one")
    following.plane.answers["one"] = failure
    with capture_logs() as logs:
        await following.look()
        # Not before the retry time.
        following.plane.lost = {"one"}
        await following.look()
        assert following.plane.asked == ["one"]
        monkeypatch.setattr(feed, "ASK_AGAIN_SECONDS", 0.0)
        following.feed._unanswered = dict.fromkeys(following.feed._unanswered, 0.0)
        for _ in range(2):
            await following.look()
    assert following.plane.asked == ["one"] * 3
    assert len(logs) == (1 if isinstance(failure, CommandFailed) else 3)
    following.plane.have("one")
    for _ in range(2):
        await following.look()
    assert (following.told, following.plane.asked) == ({"one": START}, ["one"] * 4)


async def test_an_object_that_never_answered_and_is_gone_delays_no_list(
    following: Following,
) -> None:
    following.plane.have("one")
    following.plane.answers["one"] = silent()
    await following.look()
    assert following.projection.unread == {key_of("one")}
    following.plane.end("one")
    following.feed._unanswered = dict.fromkeys(following.feed._unanswered, 0.0)
    await following.look()
    assert (following.projection.unread, following.feed._unanswered) == (set(), {})


async def test_a_workflow_before_its_first_task_is_no_object(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    following.plane.have("one", uid="")
    await following.look()
    assert (following.told, following.projection.unread) == ({}, {key_of("one")})
    following.plane.end("one")
    monkeypatch.setattr(feed, "RELIST_SECONDS", 0.0)
    await following.look()
    assert following.projection.unread == set()


# Deleted objects


async def test_deletions_are_found_by_visibility_or_the_next_listing(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("told", "lost"):
        following.plane.have(name)
    await following.look()
    following.plane.end("told", utc_now())
    following.plane.end("lost")
    await following.look()
    assert (set(following.told), following.gone) == ({"lost"}, {"told"})
    monkeypatch.setattr(feed, "RELIST_SECONDS", 0.0)
    await following.look()
    assert (following.told, following.gone) == ({}, {"told", "lost"})


async def test_deletions_before_the_start_and_between_polls_are_known(
    following: Following,
) -> None:
    following.plane.closed["before"] = utc_now() - timedelta(minutes=1)
    await following.look()
    following.plane.closed["between"] = utc_now()
    await following.look()
    assert following.gone == {"before", "between"}


async def test_watches_resume_as_far_back_as_deletions_are_known(
    following: Following,
) -> None:
    for _ in range(2):
        begun = utc_now()
        await following.look()
    since = [
        datetime.fromisoformat(query.split('"')[-2])
        for query in following.plane.queries
        if "CloseTime" in query
    ]
    late, moment = timedelta(microseconds=LATE_MICROSECONDS), timedelta(seconds=5)
    # Further polls search for workflows closed since the previous poll, and for late
    # ones.
    assert [
        begun - GONE_BEFORE_START - late - moment
        < since[0]
        < begun - GONE_BEFORE_START - late + moment
    ] == [True]
    assert begun - late - moment < since[1] < begun - late
    low = datetime.fromtimestamp(following.projection.low / 1e6, UTC)
    assert since[0] < low < since[0] + late + moment


async def test_a_running_object_stays_though_an_earlier_workflow_was_closed(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    following.plane.have("one")
    await following.look()
    following.plane.closed["one"] = utc_now()
    await following.look()
    assert (following.told, following.plane.checked) == ({"one": START}, ["one"])
    # An object that changed after the close time need not be checked.
    following.plane.have("one", int(utc_now().timestamp() * 1e6) + 1)
    await following.look()
    following.plane.checked.clear()
    await following.look()
    assert following.plane.checked == []
    # It was started after the listing.
    following.plane.lost = {"one"}
    rows = following.plane.rows

    async def shown_late(query: str) -> AsyncIterator[Any]:
        async for row in rows(query):
            if "CloseTime" in query:
                yield row

    monkeypatch.setattr(following.plane, "rows", shown_late)
    monkeypatch.setattr(feed, "RELIST_SECONDS", 0.0)
    await following.look()
    assert set(following.told) == {"one"}


@pytest.mark.parametrize("is_told", [True, False])
async def test_an_object_that_is_recreated_during_the_check_stays(
    following: Following, monkeypatch: pytest.MonkeyPatch, *, is_told: bool
) -> None:
    following.plane.have("one")
    await following.look()
    following.plane.end("one", utc_now() if is_told else None)

    async def created_meanwhile(_: Target) -> bool:
        following.projection.put(key_of("one"), a_tree("one", START + 9, "u2"))
        return False

    monkeypatch.setattr(following.plane, "exists", created_meanwhile)
    monkeypatch.setattr(feed, "RELIST_SECONDS", 3600.0 if is_told else 0.0)
    await following.look()
    assert following.told == {"one": START + 9}


# Failures


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failure", "told"),
    [(silent(), "no worker answers"), (ZeroDivisionError(), "internal error")],
    ids=["Temporal does not answer", "a defect"],
)
async def test_changes_are_followed_again_after_any_failure(
    following: Following, monkeypatch: pytest.MonkeyPatch, failure: Exception, told: str
) -> None:
    for name in ("RETRY_SECONDS", "POLL_SECONDS"):
        monkeypatch.setattr(feed, name, 0.01)
    rows = following.plane.rows

    async def failing(_: str) -> AsyncIterator[Any]:
        raise failure
        yield

    async def problem() -> str:
        return following.feed.problem

    monkeypatch.setattr(following.plane, "rows", failing)
    task = asyncio.create_task(following.feed.run())
    try:
        await eventually(problem, lambda text: text == told, what="the failure")
        assert not following.projection.complete
        following.plane.have("one")
        monkeypatch.setattr(following.plane, "rows", rows)
        await eventually(problem, lambda text: not text, what="the next look")
        assert (following.projection.complete, following.told) == (True, {"one": START})
    finally:
        task.cancel()
