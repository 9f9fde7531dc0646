"""The number of concurrent requests to one server, and when it gets none."""

import asyncio

import pytest

from activities.clients.kubernetes.throttle import RequestLimit, ServerUnresponsive

SILENT_SECONDS = 0.2


async def hold(limit: RequestLimit, until: asyncio.Event) -> None:
    async with limit.turn():
        await until.wait()


@pytest.mark.slow
async def test_more_requests_than_turns_wait_while_the_server_answers() -> None:
    limit, done = RequestLimit(2, SILENT_SECONDS), asyncio.Event()
    tasks = [asyncio.create_task(hold(limit, done)) for _ in range(5)]
    for _ in range(6):
        await asyncio.sleep(SILENT_SECONDS / 2)
        limit.record_response()
        assert not any(task.done() for task in tasks)
    done.set()
    await asyncio.gather(*tasks)


@pytest.mark.slow
async def test_a_server_that_answers_none_gets_one_request_at_a_time_until_it_answers() -> (
    None
):
    limit, done = RequestLimit(2, SILENT_SECONDS), asyncio.Event()
    tasks = [asyncio.create_task(hold(limit, done)) for _ in range(2)]
    waiting = asyncio.create_task(hold(limit, done))
    await asyncio.sleep(1.5 * SILENT_SECONDS)
    with pytest.raises(ServerUnresponsive):
        await waiting
    tasks[0].cancel()
    await asyncio.gather(tasks[0], return_exceptions=True)
    tasks.append(asyncio.create_task(hold(limit, done)))
    await asyncio.sleep(0)
    with pytest.raises(ServerUnresponsive):
        await hold(limit, done)
    limit.record_response()
    tasks[1].cancel()
    tasks.append(asyncio.create_task(hold(limit, done)))
    await asyncio.sleep(SILENT_SECONDS / 2)
    done.set()
    await asyncio.gather(*tasks[2:])


@pytest.mark.slow
async def test_a_server_that_refuses_connections_does_not_count_as_hanging() -> None:
    limit = RequestLimit(2, SILENT_SECONDS)
    for _ in range(4):
        with pytest.raises(ConnectionRefusedError):
            async with limit.turn():
                raise ConnectionRefusedError
        await asyncio.sleep(SILENT_SECONDS)


async def hold_apply(
    limit: RequestLimit,
    turns: asyncio.Semaphore,
    until: asyncio.Event,
    order: list[int],
    number: int,
) -> None:
    async with limit.waiting_for(turns):
        order.append(number)
        await until.wait()


async def is_one_turn(turns: asyncio.Semaphore) -> None:
    """No turn was lost, and none was returned twice."""
    async with asyncio.timeout(SILENT_SECONDS):
        await turns.acquire()
    assert turns.locked()


@pytest.mark.slow
async def test_applies_get_their_turns_in_order_also_after_a_cancellation() -> None:
    limit, turns, done = (
        RequestLimit(2, SILENT_SECONDS),
        asyncio.Semaphore(1),
        asyncio.Event(),
    )
    order: list[int] = []
    tasks = [
        asyncio.create_task(hold_apply(limit, turns, done, order, number))
        for number in range(5)
    ]
    # Longer than the silence limit: a place in the queue is kept.
    await asyncio.sleep(2.5 * SILENT_SECONDS)
    assert order == [0]
    tasks[1].cancel()
    done.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [0, 2, 3, 4]
    await is_one_turn(turns)


async def test_an_apply_cancelled_at_the_moment_of_its_turn_releases_it() -> None:
    limit, turns, done = (
        RequestLimit(2, SILENT_SECONDS),
        asyncio.Semaphore(1),
        asyncio.Event(),
    )
    order: list[int] = []
    tasks = [
        asyncio.create_task(hold_apply(limit, turns, done, order, number))
        for number in range(2)
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    tasks[0].cancel()
    # One step at a time: at one of them the second request has its turn without knowing
    # it.
    for _ in range(3):
        await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await is_one_turn(turns)


async def test_applies_do_not_wait_for_a_turn_on_a_server_that_answers_none() -> None:
    limit, turns, done = (
        RequestLimit(2, SILENT_SECONDS),
        asyncio.Semaphore(1),
        asyncio.Event(),
    )
    order: list[int] = []
    first = asyncio.create_task(hold_apply(limit, turns, done, order, 0))
    request = asyncio.create_task(hold(limit, done))
    waiting = asyncio.create_task(hold_apply(limit, turns, done, order, 1))
    with pytest.raises(ServerUnresponsive):
        async with asyncio.timeout(5 * SILENT_SECONDS):
            await waiting
    done.set()
    await asyncio.gather(first, request)
    # A free turn is used: its requests find out whether the server responds again.
    await hold_apply(limit, turns, done, order, 2)
    assert order == [0, 2]
