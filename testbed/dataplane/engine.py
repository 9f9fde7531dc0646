"""The simulated engine of a pod.

Its responses name the pod that was called.

The engine has the API of an OpenAI-compatible server, so that clients can use it
through a route. The text of a response contains the dialled address and the received
path, for routing tests. Its words are repeated up to `max_tokens`. Each token takes
`seconds_per_token`, so that a request can take as long as a request to a real model.
`/v1/echo` and the paths of `interfaces.py` return the received request as JSON. Every
response lists the names of the headers that the engine received. A request waits while
others use all slots of the engine, and `/metrics` shows its load (`load.py`).
"""

import asyncio
import hashlib
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from itertools import cycle, islice
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from testbed.dataplane.interfaces import ADMINISTRATION_PATHS, CLIENT_PATHS
from testbed.dataplane.load import TRT_LLM, VLLM, EngineLoad

PORT = 8000
MODEL = "simulated"
POD_HEADER = "x-pod-ip"
RECEIVED_HEADER = "x-received-headers"
"""The names of the headers that the engine received, separated by commas."""
PACE_VARIABLE = "TESTBED_SECONDS_PER_TOKEN"
"""Seconds per token, if the request does not set them."""

BODY_BYTES_MAX = 32 << 20
TOKENS_MAX = 100_000
SECONDS_PER_TOKEN_MAX = 60.0


class _Message(BaseModel):
    model_config = ConfigDict(extra="allow")

    content: Any = None


class _StreamOptions(BaseModel):
    include_usage: bool = False


class _Ask(BaseModel):
    """The fields of a request that the engine reads. Real engines accept many more."""

    model_config = ConfigDict(extra="ignore")

    model: str | None = None
    messages: list[_Message] = []
    prompt: Any = None
    stream: bool = False
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=1, le=TOKENS_MAX)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=TOKENS_MAX)
    seconds_per_token: float | None = Field(
        default=None, ge=0, le=SECONDS_PER_TOKEN_MAX
    )


class _AnswerShape(BaseModel):
    """The format of the responses of one of the two APIs."""

    id_prefix: str
    whole: str
    chunk: str
    chat: bool

    def choice(
        self, text: str, finished: str | None, *, first: bool, streamed: bool
    ) -> dict[str, Any]:
        said: dict[str, Any] = {"text": text}
        if self.chat:
            role = {"role": "assistant"} if first else {}
            said = {"delta" if streamed else "message": {**role, "content": text}}
        return {"index": 0, **said, "logprobs": None, "finish_reason": finished}


_CHAT = _AnswerShape(
    id_prefix="chatcmpl",
    whole="chat.completion",
    chunk="chat.completion.chunk",
    chat=True,
)
_TEXT = _AnswerShape(
    id_prefix="cmpl", whole="text_completion", chunk="text_completion", chat=False
)


def application(
    model: str = MODEL, engine: str = VLLM, load: EngineLoad | None = None
) -> ASGIApp:
    """Build the engine.

    `model` is the name that the engine lists, and the default model name in responses.
    `engine` decides about the names of the metrics of `load`.
    """
    own = load or EngineLoad()

    async def models(request: Request) -> Response:
        return JSONResponse(
            {
                "object": "list",
                "data": [
                    {
                        "id": model,
                        "object": "model",
                        "created": 0,
                        "owned_by": _pod(request.scope),
                    }
                ],
            }
        )

    def completions(shape: _AnswerShape) -> Callable[[Request], Awaitable[Response]]:
        async def complete(request: Request) -> Response:
            return await _complete(request, shape, model, own)

        return complete

    async def metrics(_: Request) -> Response:
        return PlainTextResponse(own.exposition(engine, model))

    # TensorRT-LLM has JSON at the usual path.
    metrics_path = "/prometheus/metrics" if engine == TRT_LLM else "/metrics"

    routes = [
        Route("/health", _health),
        Route("/v1/models", models),
        Route("/v1/chat/completions", completions(_CHAT), methods=["POST"]),
        Route("/v1/completions", completions(_TEXT), methods=["POST"]),
        Route("/v1/echo", _echo, methods=["GET", "POST"]),
        Route(metrics_path, metrics),
        *(
            Route(each.path, _received, methods=[each.method])
            for each in (*CLIENT_PATHS, *ADMINISTRATION_PATHS)
        ),
    ]
    engine_app = Starlette(routes=routes, exception_handlers={HTTPException: _refused})
    # Engines answer 404 for a path with another slash at its end.
    engine_app.router.redirect_slashes = False
    return _with_pod(engine_app)


def _with_pod(engine: ASGIApp) -> ASGIApp:
    """Add the pod's address and the received headers to every response."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_pod(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    (POD_HEADER.encode(), _pod(scope).encode()),
                    (
                        RECEIVED_HEADER.encode(),
                        b",".join(sorted({name for name, _ in scope["headers"]})),
                    ),
                ]
            await send(message)

        await engine(scope, receive, send_with_pod)

    return answer


def _pod(scope: Scope) -> str:
    return str(scope["server"][0])


async def _health(request: Request) -> Response:
    return JSONResponse({"pod": _pod(request.scope)})


async def _echo(request: Request) -> Response:
    arrived = {
        "path": request.url.path,
        "query": request.url.query,
        "host": request.headers.get("host", ""),
        "scheme": request.url.scheme,
    }
    return JSONResponse({"pod": _pod(request.scope), **arrived})


async def _received(request: Request) -> Response:
    """Return the request, with the size and the digest of its body."""
    size, digest = 0, hashlib.sha256()
    async for chunk in request.stream():
        size += len(chunk)
        digest.update(chunk)
    arrived = {
        "method": request.method,
        "path": request.url.path,
        "type": request.headers.get("content-type", ""),
        "bytes": size,
        "sha256": digest.hexdigest(),
    }
    return JSONResponse({"pod": _pod(request.scope), **arrived})


async def _refused(request: Request, error: Exception) -> Response:
    """Return an error in the format of OpenAI's API, including errors of the router."""
    refusal = error if isinstance(error, HTTPException) else HTTPException(500)
    message = f"{refusal.detail}: {request.method} {request.url.path} at pod {_pod(request.scope)}"
    document = {
        "message": message,
        "type": "invalid_request_error",
        "param": None,
        "code": refusal.status_code,
    }
    return JSONResponse({"error": document}, refusal.status_code, refusal.headers)


async def _complete(
    request: Request, shape: _AnswerShape, model: str, load: EngineLoad
) -> Response:
    ask = await _read(request)
    words = f"pod {_pod(request.scope)} was asked at {request.url.path}".split()
    limit = ask.max_completion_tokens or ask.max_tokens
    tokens = [f"{word} " for word in islice(cycle(words), limit or len(words))]
    pace = (
        float(os.environ.get(PACE_VARIABLE) or 0)
        if ask.seconds_per_token is None
        else ask.seconds_per_token
    )
    answer = {
        "id": f"{shape.id_prefix}-{time.time_ns():x}",
        "created": int(time.time()),
        "model": ask.model or model,
    }
    prompted = sum(
        len(str(content or "").split())
        for content in (ask.prompt, *(each.content for each in ask.messages))
    )
    usage = {
        "prompt_tokens": prompted,
        "completion_tokens": len(tokens),
        "total_tokens": prompted + len(tokens),
    }
    finished = "length" if limit else "stop"
    adapter = ask.model if ask.model not in (None, model) else ""
    slot = load.request(prompted + len(tokens), adapter or "")
    if ask.stream:
        choices = [
            shape.choice(
                token,
                finished if number == len(tokens) else None,
                first=number == 1,
                streamed=True,
            )
            for number, token in enumerate(tokens, 1)
        ]
        last = (
            usage if ask.stream_options and ask.stream_options.include_usage else None
        )
        # Start the response with its first token. If the response started when the last
        # byte of the request arrived, a gateway might not have read the end of that
        # request yet: Go's reverse proxy then closes the connection
        # (ErrBodyReadAfterClose).
        chunks = _stream(answer | {"object": shape.chunk}, choices, pace, last, slot)
        first = await anext(chunks)
        return StreamingResponse(
            _continued(first, chunks),
            media_type="text/event-stream",
            headers={"cache-control": "no-cache"},
        )
    async with slot:
        await asyncio.sleep(pace * len(tokens))
    choice = shape.choice(
        "".join(tokens).rstrip(), finished, first=True, streamed=False
    )
    return JSONResponse(
        answer | {"object": shape.whole, "choices": [choice], "usage": usage}
    )


async def _read(request: Request) -> _Ask:
    """Read a request.

    Raise HTTPException with status 413 if its body is too large, 400 if it is invalid.
    """
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
        raise HTTPException(
            400, f"{place}: {fault['msg']}" if place else fault["msg"]
        ) from None


async def _stream(
    answer: dict[str, Any],
    choices: Iterable[dict[str, Any]],
    pace: float,
    usage: dict[str, int] | None,
    slot: AbstractAsyncContextManager[None],
) -> AsyncIterator[str]:
    async with slot:
        for choice in choices:
            await asyncio.sleep(pace)
            yield _event(answer | {"choices": [choice]})
    if usage:
        yield _event(answer | {"choices": [], "usage": usage})
    yield "data: [DONE]\n\n"


async def _continued(first: str, rest: AsyncIterator[str]) -> AsyncIterator[str]:
    yield first
    async for each in rest:
        yield each


def _event(document: dict[str, Any]) -> str:
    return f"data: {json.dumps(document)}\n\n"
