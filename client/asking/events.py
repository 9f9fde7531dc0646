"""Server-sent events of a streamed chat completion, as OpenAI's API sends them."""

import json
from collections.abc import AsyncIterator

from client.errors import CommandFailed

LINE_BYTES_MAX = 1 << 20
"""Of one event: a token takes some hundred bytes."""


async def lines_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Split chunks of any size into lines, whatever their ends. Raises `CommandFailed` for one that is too long."""
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r").decode(errors="replace")
        if len(rest) > LINE_BYTES_MAX:
            raise CommandFailed(
                f"the model sent a line of more than {LINE_BYTES_MAX >> 20} MiB", next_step="ask again with --no-stream, or look at its log"
            )
    if rest:
        yield rest.decode(errors="replace")


async def tokens_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Give the texts of a streamed completion. Raises `CommandFailed` for an error in the middle, and for one that is cut off."""
    async for line in lines_of(chunks):
        field, _, value = line.partition(":")
        if field != "data":
            # Comments keep the connection alive, and other fields are not used.
            continue
        data = value.strip()
        if data == "[DONE]":
            return
        yield _text_of(data)
    raise CommandFailed("the answer was cut off", next_step="ask again; if it happens again look at the model's log")


def _text_of(data: str) -> str:
    try:
        event = json.loads(data)
        if "error" in event:
            message = event["error"].get("message") if isinstance(event["error"], dict) else event["error"]
            raise CommandFailed(f"the model failed: {message}", next_step="ask again, or look at the model's log")
        return "".join(str((choice.get("delta") or {}).get("content") or "") for choice in event.get("choices") or ())
    except (ValueError, AttributeError, TypeError) as error:
        raise CommandFailed(f"the model sent what is no part of a completion: {data[:200]}", next_step="look at the model's log") from error
