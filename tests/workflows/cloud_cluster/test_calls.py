"""The activities that a CloudCluster has running, when all of them are stopped."""

import asyncio

from workflows.cloud_cluster.calls import Calls


async def test_what_an_activity_gives_while_all_are_stopped_begins_no_other() -> None:
    calls, given = Calls(lambda: None), list[str]()

    async def broken() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            # It had a result when the cancellation reached it.
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
    assert given == ["broken", "deletes", "absent"], "after that others begin"
