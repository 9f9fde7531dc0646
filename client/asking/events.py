"""Server-sent events of a streamed chat completion, as OpenAI's API sends them."""

import json
from collections.abc import AsyncIterator

from fleet_client.errors import CommandFailed

LINE_BYTES_MAX = 1 << 20
"""The longest event. One token takes some hundred bytes."""


async def lines_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Split chunks of any size into lines.

    Raise `CommandFailed` for a line that is too long.
    """
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r").decode(errors="replace")
        if len(rest) > LINE_BYTES_MAX:
            raise CommandFailed(
                f"the model sent a line of more than {LINE_BYTES_MAX >> 20} MiB",
                next_step="run the command again with --no-stream, or read the model's log",
            )
    if rest:
        yield rest.decode(errors="replace")


async def tokens_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Yield the texts of a streamed completion.

    Raise `CommandFailed` if the stream contains an error or ends early.
    """
    async for line in lines_of(chunks):
        field, _, value = line.partition(":")
        if field != "data":
            # Ignore comments, which keep the connection alive, and all other fields.
            continue
        data = value.strip()
        if data == "[DONE]":
            return
        yield _text_of(data)
    raise CommandFailed(
        "the answer was cut off",
        next_step="run the command again; if this repeats, read the model's log",
    )


def _text_of(data: str) -> str:
    try:
        event = json.loads(data)
        if "error" in event:
            message = (
                event["error"].get("message")
                if isinstance(event["error"], dict)
                else event["error"]
            )
            raise CommandFailed(
                f"the model failed: {message}",
                next_step="run the command again, or read the model's log",
            )
        return "".join(
            str((choice.get("delta") or {}).get("content") or "")
            for choice in event.get("choices") or ()
        )
    except (ValueError, AttributeError, TypeError) as error:
        raise CommandFailed(
            f"the model sent an event that is not part of a chat completion: {data[:200]}",
            next_step="read the model's log",
        ) from error
