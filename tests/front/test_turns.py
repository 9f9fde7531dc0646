"""Turns of those who write one object: who is told that nobody answers, and who has a turn all the same."""

import asyncio

import pytest

from front.store.projection import Key
from front.store.turns import Turns, _Turn
from tests.workflows.environment.harness import eventually

KEY = Key("ModelDeployment", "a", "mine")


class Silence(Exception):
    """Nobody answers."""


class Behind(Exception):
    """The write before this one got no answer."""


@pytest.fixture
def turns() -> Turns:
    return Turns(Silence, Behind)


async def fail(turns: Turns, failure: Exception, go: asyncio.Event) -> None:
    async with turns.of(KEY):
        await go.wait()
        raise failure


async def a_turn(turns: Turns) -> None:
    async with turns.of(KEY):
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failure", "told"),
    [pytest.param(Silence(), Behind, id="nobody answers"), pytest.param(ValueError(), type(None), id="it is refused")],
)
async def test_who_waits_is_told_of_a_write_that_got_no_answer_and_of_no_other(
    turns: Turns, failure: Exception, told: type[Exception]
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


async def test_who_comes_after_a_write_that_got_no_answer_has_a_turn(turns: Turns) -> None:
    # Kept, as by one that waits.
    kept = turns._turns.setdefault(KEY, _Turn())
    go = asyncio.Event()
    go.set()
    with pytest.raises(Silence):
        await fail(turns, Silence(), go)
    assert kept.silent is not None
    await a_turn(turns)


async def test_nothing_is_kept_of_an_object_that_nobody_writes(turns: Turns) -> None:
    await a_turn(turns)
    assert len(turns._turns) == 0
