"""Turns of writers: who fails with an unanswered write, and who still gets a turn."""

import asyncio

import pytest

from front.serving import errors
from front.serving.writes.turns import WriteTurns, _Turn
from front.store.projection import ObjectKey
from tests.workflows.environment.harness import eventually

KEY = ObjectKey("ModelDeployment", "a", "mine")


@pytest.fixture
def turns() -> WriteTurns:
    return WriteTurns()


async def fail(turns: WriteTurns, failure: Exception, go: asyncio.Event) -> None:
    async with turns.of(KEY):
        await go.wait()
        raise failure


async def a_turn(turns: WriteTurns) -> None:
    async with turns.of(KEY):
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failure", "told"),
    [
        pytest.param(errors.silent("x"), errors.Silent, id="nobody answers"),
        pytest.param(ValueError(), type(None), id="it is refused"),
    ],
)
async def test_queued_writes_fail_only_with_an_unanswered_write(
    turns: WriteTurns, failure: Exception, told: type[Exception]
) -> None:
    go = asyncio.Event()
    first = asyncio.create_task(fail(turns, failure, go))
    await asyncio.sleep(0)
    second = asyncio.create_task(a_turn(turns))

    async def waiting() -> int:
        return len(turns._turns[KEY].lock._waiters or ())

    await eventually(waiting, lambda count: count == 1, what="the second write")
    go.set()
    found = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(each) for each in found] == [type(failure), told]


async def test_a_write_after_an_unanswered_one_gets_a_turn(
    turns: WriteTurns,
) -> None:
    # Keeps the turn alive, as a waiting write does.
    kept = turns._turns.setdefault(KEY, _Turn())
    go = asyncio.Event()
    go.set()
    with pytest.raises(errors.Silent):
        await fail(turns, errors.silent("x"), go)
    assert kept.silent is not None
    await a_turn(turns)


async def test_turns_of_idle_objects_are_dropped(turns: WriteTurns) -> None:
    await a_turn(turns)
    assert len(turns._turns) == 0
