"""Cancelling all running activities of a CloudCluster."""

import asyncio

from workflows.cloud_cluster.calls import Calls


async def test_a_result_that_arrives_during_cancellation_starts_no_activity() -> None:
    calls, given = Calls(lambda: None), list[str]()

    async def broken() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            # The activity already had a result when the cancellation arrived.
            return "broken"
        return "ready"

    async def deletes() -> str:
        given.append("deletes")
        return "absent"

    def start(result: str) -> None:
        given.append(result)
        calls.start("pool/gpu", deletes, given.append, lambda _: None)

    calls.start("pool/gpu", broken, start, lambda _: None)
    await asyncio.sleep(0)
    await calls.stop_all()
    await asyncio.sleep(0)
    assert (given, calls.keys) == (["broken"], [])
    ended = asyncio.Event()

    def end(result: str) -> None:
        given.append(result)
        ended.set()

    calls.start("pool/gpu", deletes, end, lambda _: None)
    await asyncio.wait_for(ended.wait(), 10)
    assert given == ["broken", "deletes", "absent"], "later activities start"
