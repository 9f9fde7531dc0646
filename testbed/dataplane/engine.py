"""The engine of a simulated pod, which says which pod was called.

The answers have the shape of an OpenAI-compatible server, so that a client can be pointed at a route; the text is the address that was
dialled and the path that arrived, which is what a routing test wants to know. A stream has `max_tokens` words, the text again and again,
and `seconds_per_token` between them, so that a request takes as long as one to a model.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable
from itertools import cycle, islice

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

PORT = 8000


def application() -> Starlette:
    """Make the engine."""
    return Starlette(
        routes=[
            Route("/health", _health),
            Route("/v1/models", _models),
            Route("/v1/chat/completions", _chat, methods=["POST"]),
            Route("/{path:path}", _anything),
        ]
    )


def _pod(request: Request) -> str:
    server = request.scope["server"]
    return str(server[0])


async def _health(request: Request) -> Response:
    return JSONResponse({"pod": _pod(request)})


async def _models(request: Request) -> Response:
    return JSONResponse({"object": "list", "data": [{"id": "simulated", "object": "model", "owned_by": _pod(request)}]})


async def _anything(request: Request) -> Response:
    return JSONResponse({"pod": _pod(request), "path": request.url.path})


async def _chat(request: Request) -> Response:
    body = await request.json()
    answer = {"id": "chatcmpl-0", "created": int(time.time()), "model": body.get("model", "simulated")}
    text = f"pod {_pod(request)} was asked at {request.url.path}"
    if body.get("stream"):
        words = text.split()
        count, pause = body.get("max_tokens") or len(words), body.get("seconds_per_token") or 0
        return StreamingResponse(_stream(answer, islice(cycle(words), count), pause), media_type="text/event-stream")
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": len(text.split()), "total_tokens": 1 + len(text.split())}
    return JSONResponse(answer | {"object": "chat.completion", "choices": [choice], "usage": usage})


async def _stream(answer: dict[str, object], words: Iterable[str], pause: float) -> AsyncIterator[str]:
    for word in words:
        await asyncio.sleep(pause)
        chunk = answer | {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": f"{word} "}}]}
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"
