"""Send requests, and print the answers as JSON: `load.py URL REQUESTS AT_ONCE BYTES`.

An answer is the status, 0 for an error; the host that the endpoint received; the body or
the error; and the header Retry-After.
"""

import asyncio
import json
import sys

import httpx

HOST_HEADER = "x-test-host"


async def _send(url: str, requests: int, at_once: int, size: int) -> list[list[object]]:
    gate = asyncio.Semaphore(at_once)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=60, limits=limits, trust_env=False) as client:

        async def one() -> list[object]:
            async with gate:
                try:
                    answer = await client.post(url, content=b"x" * size)
                except httpx.HTTPError as error:
                    return [0, "", repr(error), ""]
                headers = answer.headers
                later = headers.get("retry-after", "")
                return [
                    answer.status_code,
                    headers.get(HOST_HEADER, ""),
                    answer.text,
                    later,
                ]

        return await asyncio.gather(*(one() for _ in range(requests)))


if __name__ == "__main__":
    url, *sizes = sys.argv[1:]
    found = asyncio.run(_send(url, *map(int, sizes)))
    sys.stdout.write(json.dumps(found))
