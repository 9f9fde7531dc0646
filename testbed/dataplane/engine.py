"""The engine of a simulated pod, which says which pod was called.

The answers have the shape of an OpenAI-compatible server, so that a client can be pointed at a route. The text is the address that was
dialled and the path that arrived, which is what a routing test wants to know; it has `max_tokens` words, again and again, and
`seconds_per_token` goes by for each of them, so that a request takes as long as one to a model. `/v1/echo` says in JSON what arrived.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from itertools import cycle, islice
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PORT = 8000
MODEL = "simulated"
POD_HEADER = "x-pod-ip"
PACE_VARIABLE = "TESTBED_SECONDS_PER_TOKEN"
"""Seconds that each token takes when a request does not say it."""

BODY_BYTES_MAX = 1 << 20
TOKENS_MAX = 100_000
SECONDS_PER_TOKEN_MAX = 60.0


class _Message(BaseModel):
    model_config = ConfigDict(extra="allow")

    content: Any = None


class _StreamOptions(BaseModel):
    include_usage: bool = False


class _Ask(BaseModel):
    """What is read of a request; engines take many more fields."""

    model_config = ConfigDict(extra="ignore")

    model: str | None = None
    messages: list[_Message] = []
    prompt: Any = None
    stream: bool = False
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=1, le=TOKENS_MAX)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=TOKENS_MAX)
    seconds_per_token: float | None = Field(default=None, ge=0, le=SECONDS_PER_TOKEN_MAX)


class _Shape(BaseModel):
    """How one of the two APIs writes its answers."""

    id_prefix: str
    whole: str
    chunk: str
    chat: bool

    def choice(self, text: str, finished: str | None, *, first: bool, streamed: bool) -> dict[str, Any]:
        said: dict[str, Any] = {"text": text}
        if self.chat:
            role = {"role": "assistant"} if first else {}
            said = {"delta" if streamed else "message": {**role, "content": text}}
        return {"index": 0, **said, "logprobs": None, "finish_reason": finished}


_CHAT = _Shape(id_prefix="chatcmpl", whole="chat.completion", chunk="chat.completion.chunk", chat=True)
_TEXT = _Shape(id_prefix="cmpl", whole="text_completion", chunk="text_completion", chat=False)


def application(model: str = MODEL) -> ASGIApp:
    """Make the engine; `model` is the name that it lists, and answers with where a request has none."""

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": model, "object": "model", "created": 0, "owned_by": _pod(request.scope)}]})

    def completions(shape: _Shape) -> Callable[[Request], Awaitable[Response]]:
        async def complete(request: Request) -> Response:
            return await _complete(request, shape, model)

        return complete

    routes = [
        Route("/health", _health),
        Route("/v1/models", models),
        Route("/v1/chat/completions", completions(_CHAT), methods=["POST"]),
        Route("/v1/completions", completions(_TEXT), methods=["POST"]),
        Route("/v1/echo", _echo, methods=["GET", "POST"]),
    ]
    return _with_pod(Starlette(routes=routes, exception_handlers={HTTPException: _refused}))


def _with_pod(engine: ASGIApp) -> ASGIApp:
    """Say in a header of every answer which pod it is from."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_pod(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (POD_HEADER.encode(), _pod(scope).encode())]
            await send(message)

        await engine(scope, receive, send_with_pod)

    return answer


def _pod(scope: Scope) -> str:
    return str(scope["server"][0])


async def _health(request: Request) -> Response:
    return JSONResponse({"pod": _pod(request.scope)})


async def _echo(request: Request) -> Response:
    arrived = {"path": request.url.path, "query": request.url.query, "host": request.headers.get("host", ""), "scheme": request.url.scheme}
    return JSONResponse({"pod": _pod(request.scope), **arrived})


async def _refused(request: Request, error: Exception) -> Response:
    """Write an error as OpenAI's API does, also one of the router: no such path, no such method."""
    refusal = error if isinstance(error, HTTPException) else HTTPException(500)
    message = f"{refusal.detail}: {request.method} {request.url.path} at pod {_pod(request.scope)}"
    document = {"message": message, "type": "invalid_request_error", "param": None, "code": refusal.status_code}
    return JSONResponse({"error": document}, refusal.status_code, refusal.headers)


async def _complete(request: Request, shape: _Shape, model: str) -> Response:
    ask = await _read(request)
    words = f"pod {_pod(request.scope)} was asked at {request.url.path}".split()
    limit = ask.max_completion_tokens or ask.max_tokens
    tokens = [f"{word} " for word in islice(cycle(words), limit or len(words))]
    pace = float(os.environ.get(PACE_VARIABLE) or 0) if ask.seconds_per_token is None else ask.seconds_per_token
    answer = {"id": f"{shape.id_prefix}-{time.time_ns():x}", "created": int(time.time()), "model": ask.model or model}
    prompted = sum(len(str(content or "").split()) for content in (ask.prompt, *(each.content for each in ask.messages)))
    usage = {"prompt_tokens": prompted, "completion_tokens": len(tokens), "total_tokens": prompted + len(tokens)}
    finished = "length" if limit else "stop"
    if ask.stream:
        choices = [
            shape.choice(token, finished if number == len(tokens) else None, first=number == 1, streamed=True)
            for number, token in enumerate(tokens, 1)
        ]
        last = usage if ask.stream_options and ask.stream_options.include_usage else None
        # The response begins with its first token. Begun as soon as the last byte of the request is here, it may reach a gateway that has
        # not yet looked for the end of that request: Go's reverse proxy then closes the connection (ErrBodyReadAfterClose).
        await asyncio.sleep(pace)
        chunks = _stream(answer | {"object": shape.chunk}, choices, pace, last)
        return StreamingResponse(chunks, media_type="text/event-stream", headers={"cache-control": "no-cache"})
    await asyncio.sleep(pace * len(tokens))
    choice = shape.choice("".join(tokens).rstrip(), finished, first=True, streamed=False)
    return JSONResponse(answer | {"object": shape.whole, "choices": [choice], "usage": usage})


async def _read(request: Request) -> _Ask:
    """Read a request. Raises HTTPException: 413 when its body is too large, 400 when it is not what the API takes."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise HTTPException(413, f"the body has more than {BODY_BYTES_MAX} bytes")
    try:
        return _Ask.model_validate_json(body)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise HTTPException(400, f"{place}: {fault['msg']}" if place else fault["msg"]) from None


async def _stream(
    answer: dict[str, Any], choices: Iterable[dict[str, Any]], pace: float, usage: dict[str, int] | None
) -> AsyncIterator[str]:
    for number, choice in enumerate(choices):
        await asyncio.sleep(pace if number else 0)
        yield _event(answer | {"choices": [choice]})
    if usage:
        yield _event(answer | {"choices": [], "usage": usage})
    yield "data: [DONE]\n\n"


def _event(document: dict[str, Any]) -> str:
    return f"data: {json.dumps(document)}\n\n"
