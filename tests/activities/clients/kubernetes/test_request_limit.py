"""How many requests one server gets at once, and when it gets none."""

import asyncio

import pytest

from activities.clients.kubernetes.throttle import NoAnswer, RequestLimit

SILENT_SECONDS = 0.2


async def hold(limit: RequestLimit, until: asyncio.Event) -> None:
    async with limit.turn():
        await until.wait()


async def test_more_requests_than_turns_wait_while_the_server_answers() -> None:
    limit, done = RequestLimit(2, SILENT_SECONDS), asyncio.Event()
    tasks = [asyncio.create_task(hold(limit, done)) for _ in range(5)]
    for _ in range(6):
        await asyncio.sleep(SILENT_SECONDS / 2)
        limit.record_response()
        assert not any(task.done() for task in tasks)
    done.set()
    await asyncio.gather(*tasks)


async def test_a_server_that_answers_none_gets_one_request_at_a_time_until_it_answers() -> None:
    limit, done = RequestLimit(2, SILENT_SECONDS), asyncio.Event()
    tasks = [asyncio.create_task(hold(limit, done)) for _ in range(2)]
    waiting = asyncio.create_task(hold(limit, done))
    await asyncio.sleep(1.5 * SILENT_SECONDS)
    with pytest.raises(NoAnswer):
        await waiting
    tasks[0].cancel()
    await asyncio.gather(tasks[0], return_exceptions=True)
    tasks.append(asyncio.create_task(hold(limit, done)))
    await asyncio.sleep(0)
    with pytest.raises(NoAnswer):
        await hold(limit, done)
    limit.record_response()
    tasks[1].cancel()
    tasks.append(asyncio.create_task(hold(limit, done)))
    await asyncio.sleep(SILENT_SECONDS / 2)
    done.set()
    await asyncio.gather(*tasks[2:])


async def test_a_server_that_refuses_connections_is_not_taken_for_one_that_hangs() -> None:
    limit = RequestLimit(2, SILENT_SECONDS)
    for _ in range(4):
        with pytest.raises(ConnectionRefusedError):
            async with limit.turn():
                raise ConnectionRefusedError
        await asyncio.sleep(SILENT_SECONDS)
