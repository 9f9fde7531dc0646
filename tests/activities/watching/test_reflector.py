"""The reflector with a scripted API server: list once, follow changes, recover."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from activities.cluster_objects.cluster_api import (
    ClusterApi,
    Event,
    GroupVersionKind,
    Json,
    Keep,
    ObjectList,
    Selection,
    WatchExpired,
    whole,
)
from activities.watching import reflector as module
from activities.watching.reflector import NamespacedName, Reflector
from api_types.errors import (
    AnswerTooLarge,
    ClusterUnreachable,
    ModelplaneError,
    PermissionDenied,
    ServerError,
    StackMissing,
)
from tests.activities.environment.cluster_under_test import eventually

SELECTION = Selection(GroupVersionKind("v1", "ConfigMap"))


def an_item(name: str, value: str, version: int = 1) -> Json:
    return {
        "metadata": {"namespace": "n", "name": name, "resourceVersion": str(version)},
        "value": value,
    }


class Script:
    """Plays lists and watches in order, and raises the errors among them.

    The last watch stays open.
    """

    def __init__(
        self,
        lists: list[list[Json] | ModelplaneError],
        watches: list[list[Event] | Exception],
    ) -> None:
        self.lists, self.watches = lists, watches
        self.requests: list[str] = []
        self.idle = asyncio.Event()

    async def list(self, selection: Selection, keep: Keep = whole) -> ObjectList:
        assert selection == SELECTION
        self.requests.append("list")
        found = self.lists.pop(0)
        if isinstance(found, Exception):
            raise found
        return ObjectList([keep(item) for item in found], "100")

    async def watch(self, _: Selection, version: str) -> AsyncIterator[Event]:
        self.requests.append(f"watch {version}")
        if not self.watches:
            self.idle.set()
            await asyncio.Event().wait()
        events = self.watches.pop(0)
        if isinstance(events, Exception):
            raise events
        for event in events:
            yield event


class Recorder:
    """The reports of a reflector."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, Any]] = []
        self.listed_count = 0

    def changed(self, key: NamespacedName, record: Any) -> None:
        self.changes.append((key.name, record))

    def listed(self) -> None:
        self.listed_count += 1


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait milliseconds instead of seconds."""
    monkeypatch.setattr(module, "_RETRY_SECONDS", (0.01, 0.02))
    monkeypatch.setattr(module, "_RESUME_SECONDS", 0.001)


async def play(
    script: Script, until: Callable[[Reflector[str]], Any] | None = None
) -> tuple[Recorder, Reflector[str]]:
    """Run a reflector until the script is over, or until a condition holds."""
    recorder = Recorder()
    reflector: Reflector[str] = Reflector(
        lambda: cast(ClusterApi, script),
        SELECTION,
        lambda item: cast(str | None, item["value"]),
        recorder.changed,
        recorder.listed,
    )
    task = asyncio.create_task(reflector.run())
    await (
        eventually(lambda: until(reflector))
        if until
        else asyncio.wait_for(script.idle.wait(), 60)
    )
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return recorder, reflector


async def test_every_object_is_reported_once_and_then_every_change() -> None:
    events = [
        Event("MODIFIED", an_item("a", "2", 101)),
        Event("ADDED", an_item("b", "1", 102)),
        Event("DELETED", an_item("a", "2", 103)),
    ]
    recorder, reflector = await play(Script([[an_item("a", "1")]], [events]))
    assert recorder.changes == [("a", "1"), ("a", "2"), ("b", "1"), ("a", None)]
    assert (recorder.listed_count, reflector.listings, reflector.problem) == (
        1,
        1,
        None,
    )


async def test_an_unchanged_record_is_not_reported_again() -> None:
    recorder, _ = await play(
        Script([[an_item("a", "1")]], [[Event("MODIFIED", an_item("a", "1", 101))]])
    )
    assert recorder.changes == [("a", "1")]


async def test_a_watch_that_ends_resumes_from_the_last_event_or_bookmark() -> None:
    script = Script(
        [[an_item("a", "1")]],
        [[Event("BOOKMARK", an_item("", "", 150))], ClusterUnreachable("gone")],
    )
    await play(script)
    assert script.requests == ["list", "watch 100", "watch 150", "watch 150"]


async def test_after_an_expired_watch_everything_is_listed_and_only_differences_are_reported() -> (
    None
):
    script = Script(
        [
            [an_item("a", "1"), an_item("b", "1")],
            [an_item("b", "1"), an_item("c", "1")],
        ],
        [WatchExpired()],
    )
    recorder, _ = await play(script)
    assert script.requests == ["list", "watch 100", "list", "watch 100"]
    assert recorder.changes == [("a", "1"), ("b", "1"), ("a", None), ("c", "1")]
    assert recorder.listed_count == 2


async def test_nothing_is_reported_before_a_list_is_complete() -> None:
    recorder, reflector = await play(
        Script(
            [ClusterUnreachable("x"), PermissionDenied("y"), [an_item("a", "1")]], []
        )
    )
    assert recorder.changes == [("a", "1")]
    assert reflector.synced


async def test_a_refused_list_is_the_problem_of_the_reflector() -> None:
    _, reflector = await play(
        Script([PermissionDenied("may not list")] * 50, []),
        until=lambda reflector: reflector.problem,
    )
    assert not reflector.synced
    assert reflector.problem is not None
    assert reflector.problem.message == "may not list"


async def test_an_unserved_kind_stops_the_reflector_and_its_records_stay_until_forget() -> (
    None
):
    script = Script([[an_item("a", "1")]], [StackMissing("no longer served")])
    recorder = Recorder()
    reflector: Reflector[str] = Reflector(
        lambda: cast(ClusterApi, script),
        SELECTION,
        lambda item: item["value"],
        recorder.changed,
        recorder.listed,
    )
    await asyncio.wait_for(reflector.run(), 60)
    assert recorder.changes == [("a", "1")]
    assert reflector.synced
    reflector.forget()
    assert recorder.changes == [("a", "1"), ("a", None)]
    assert reflector._budget.used == 0


async def test_taken_over_records_are_only_reported_where_the_first_list_differs() -> (
    None
):
    recorder, budget = Recorder(), module.RecordBudget()

    def a_reflector(script: Script) -> Reflector[str]:
        return Reflector(
            lambda: cast(ClusterApi, script),
            SELECTION,
            lambda item: item["value"],
            recorder.changed,
            recorder.listed,
            budget=budget,
        )

    former = a_reflector(
        Script(
            [[an_item("a", "1"), an_item("b", "1"), an_item("c", "1")]],
            [StackMissing("no longer served")],
        )
    )
    await asyncio.wait_for(former.run(), 60)
    recorder.changes.clear()
    later = a_reflector(
        Script(
            [[an_item("a", "1"), an_item("b", "2")]], [StackMissing("no longer served")]
        )
    )
    later.take_over(former)
    former.forget()
    assert (recorder.changes, later.synced, budget.used) == (
        [],
        True,
        3 * module.weight("1"),
    )
    await asyncio.wait_for(later.run(), 60)
    assert recorder.changes == [("c", None), ("b", "2")]
    assert budget.used == 2 * module.weight("1")


async def test_an_object_with_another_owner_is_dropped() -> None:
    recorder, _ = await play(
        Script(
            [[an_item("a", "1")]],
            [[Event("MODIFIED", {**an_item("a", "", 101), "value": None})]],
        )
    )
    assert recorder.changes == [("a", "1"), ("a", None)]


async def test_after_an_event_that_is_too_large_everything_is_listed_and_the_watch_goes_on() -> (
    None
):
    script = Script(
        [[an_item("a", "1")], [an_item("a", "2")]],
        [AnswerTooLarge("a line"), [Event("ADDED", an_item("b", "1", 101))]],
    )
    recorder, reflector = await play(script)
    assert script.requests == ["list", "watch 100", "list", "watch 100", "watch 101"]
    assert recorder.changes == [("a", "1"), ("a", "2"), ("b", "1")]
    assert reflector.lasting_problem is None


async def test_a_copy_that_cannot_be_kept_current_several_times_in_a_row_is_a_lasting_problem() -> (
    None
):
    failing: list[list[Json] | ModelplaneError] = [AnswerTooLarge("a list")] * 50
    lists: list[list[Json] | ModelplaneError] = [[an_item("a", "1")], *failing]
    seen: list[int] = []

    def lasting(reflector: Reflector[str]) -> bool:
        if reflector.problem and not reflector.lasting_problem:
            seen.append(reflector._failures)
        return reflector.lasting_problem is not None

    _, reflector = await play(Script(lists, [AnswerTooLarge("a line")]), until=lasting)
    assert reflector.synced
    assert str(reflector.lasting_problem).endswith("a list")
    assert all(count < 3 for count in seen)


async def test_a_lasting_problem_is_over_with_the_next_event_and_not_with_the_next_attempt() -> (
    None
):
    failures: list[list[Event] | Exception] = [ServerError("a watch")] * 3
    _, reflector = await play(Script([[an_item("a", "1")]], list(failures)))
    assert reflector.lasting_problem is not None
    _, reflector = await play(
        Script(
            [[an_item("a", "1")]],
            [*failures, [Event("BOOKMARK", an_item("", "", 150))]],
        )
    )
    assert reflector.lasting_problem is None


async def test_a_silent_server_is_not_a_lasting_problem_of_a_complete_copy() -> None:
    script = Script([[an_item("a", "1")]], [ClusterUnreachable("no response")] * 5)
    _, reflector = await play(script)
    assert reflector.lasting_problem is None


@pytest.mark.slow
async def test_watches_that_always_expire_are_retried_with_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_RESUME_SECONDS", 0.05)
    lists: list[list[Json] | ModelplaneError] = [[] for _ in range(1000)]
    script = Script(lists, [WatchExpired() for _ in range(1000)])
    recorder = Recorder()
    reflector: Reflector[str] = Reflector(
        lambda: cast(ClusterApi, script),
        SELECTION,
        lambda item: item["value"],
        recorder.changed,
        recorder.listed,
    )
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reflector.run(), 0.5)
    assert len(script.requests) < 30


async def test_an_object_that_cannot_be_read_is_a_problem_and_not_the_end_of_the_watch() -> (
    None
):
    unreadable = an_item("b", "1", 101)
    del unreadable["value"]
    recorder, reflector = await play(
        Script([[an_item("a", "1")]], [[Event("ADDED", unreadable)]] * 50),
        until=lambda reflector: reflector.lasting_problem,
    )
    assert recorder.changes == [("a", "1")]
    assert isinstance(reflector.problem, ServerError)
    assert "v1/ConfigMap/n/b cannot be read" in reflector.problem.message


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "seen by the watch"])
async def test_the_records_of_a_cluster_are_bounded_and_more_is_a_problem(
    listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES_MAX", 1 << 20)
    few, many = (
        [an_item("a", "1")],
        [an_item(f"i{number}", "x" * 500_000, 101 + number) for number in range(3)],
    )
    lists: list[list[Json] | ModelplaneError] = [few + many] * 50 if listed else [few]
    script = Script(lists, [[Event("ADDED", item) for item in many]] * 50)
    recorder, reflector = await play(script, until=lambda reflector: reflector.problem)
    assert [name for name, _ in recorder.changes] == (
        [] if listed else ["a", "i0", "i1"]
    )
    assert isinstance(reflector.problem, ServerError)
    assert "exceed 1 MiB, v1/ConfigMap among them" in reflector.problem.message


async def test_deleted_records_make_room() -> None:
    item = an_item("a", "x" * 1000)
    script = Script(
        [[item], [item]],
        [
            [Event("DELETED", item), Event("ADDED", item), Event("MODIFIED", item)],
            WatchExpired(),
        ],
    )
    _, reflector = await play(script)
    assert reflector._budget.used == module.weight("x" * 1000)


async def test_an_object_that_is_nested_too_deep_to_be_compared_is_not_kept() -> None:
    deep: Any = "x"
    for _ in range(500):
        deep = [deep]
    script = Script([[{**an_item("a", ""), "value": deep}]] * 50, [])
    recorder, reflector = await play(script, until=lambda reflector: reflector.problem)
    assert (recorder.changes, reflector.synced) == ([], False)
