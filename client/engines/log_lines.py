"""Prints the logs of several containers line by line."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence

from client.engines.cluster_access import cluster_failures
from client.engines.pods import EnginePod
from client.failures import combine
from fleet_client.errors import CommandFailed

_LINE_BYTES_MAX = 1 << 20


async def print_logs(
    pods: Sequence[tuple[EnginePod, str]],
    options: Mapping[str, str],
    *,
    prefixed: bool,
    at_once: bool,
) -> None:
    """Print the log of each container, in turn or all at once.

    Raise `CommandFailed` about containers without a log, after the others were printed.
    """
    failures: list[CommandFailed] = []

    async def print_one(pod: EnginePod, container: str) -> None:
        prefix = f"[pod/{pod.pod.name}/{container}] " if prefixed else ""
        query = {**options, "container": container}
        try:
            with cluster_failures():
                async for line in lines(pod.streams.logs(pod.pod, query)):
                    print(f"{prefix}{line.decode(errors='replace')}", flush=at_once)
        except CommandFailed as failure:
            failures.append(failure)

    if at_once:
        async with asyncio.TaskGroup() as tasks:
            for pod, container in pods:
                tasks.create_task(print_one(pod, container))
    else:
        for pod, container in pods:
            await print_one(pod, container)
    if failures:
        raise combine(failures)


async def lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield lines without their breaks. A line of more than 1 MiB comes in parts."""
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
        if len(rest) > _LINE_BYTES_MAX:
            yield rest
            rest = b""
    if rest:
        yield rest
