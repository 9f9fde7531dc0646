"""`modelplane chat`: a chat completion through the control gateway, token by token."""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from client.asking.events import tokens_of
from client.asking.requests import raise_for_status, read_whole, requested
from client.asking.service import ServiceAddress, find_service
from client.commands import options
from fleet_client.errors import CommandFailed, Refused
from fleet_client.refs.targets import Target, kind_named

_REQUEST_SECONDS = 300.0

Message = dict[str, str]


def chat(
    service: Annotated[str, typer.Argument(help="The ModelService.")],
    message: Annotated[
        list[str] | None,
        typer.Argument(
            help="The message; without one, standard input, or a conversation on a terminal."
        ),
    ] = None,
    *,
    namespace: options.Namespace = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="Name of the model; default: the first that the service lists.",
            show_default=False,
        ),
    ] = None,
    stream: Annotated[
        bool, typer.Option("--stream/--no-stream", help="Show tokens as they come.")
    ] = True,
    gateway: options.Gateway = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", min=0.1, help="How long to wait for an answer, in seconds."
        ),
    ] = _REQUEST_SECONDS,
) -> None:
    """Send a message to the model of a ModelService.

    The answer is on standard output; the endpoint that answered, and how fast, on
    standard error.

    For example:
      modelplane chat demo 'What answers here?'
      modelplane chat demo -n ml --model qwen
    """
    target = Target.of(
        kind_named("ModelService"), namespace, service.removeprefix("ms/")
    )
    said = _said(message)
    found, name = asyncio.run(_find(target, model, gateway, timeout))
    if said is not None:
        asyncio.run(
            _ask(
                found,
                name,
                [{"role": "user", "content": said}],
                stream=stream,
                seconds=timeout,
            )
        )
        return
    conversation: list[Message] = []
    while (line := _next_line()) is not None:
        if line:
            conversation.append({"role": "user", "content": line})
            answer = asyncio.run(
                _ask(found, name, conversation, stream=stream, seconds=timeout)
            )
            conversation.append({"role": "assistant", "content": answer})


def _said(message: Sequence[str] | None) -> str | None:
    """Return the message of a single question, or None for a conversation."""
    if message:
        return " ".join(message)
    if sys.stdin.isatty():
        return None
    said = sys.stdin.read().strip()
    if not said:
        raise Refused(
            "there is no message", next_step="add one: `modelplane chat NAME hello`"
        )
    return said


async def _find(
    target: Target, model: str | None, gateway: str | None, seconds: float
) -> tuple[ServiceAddress, str]:
    service = await find_service(target, gateway)
    return service, model or await first_model(service, seconds)


def _next_line() -> str | None:
    try:
        return input("> ").strip()
    except EOFError:
        print()
        return None


async def first_model(service: ServiceAddress, seconds: float) -> str:
    """Return the first model that a service lists.

    Raise `CommandFailed` if it lists none.
    """
    async with requested(service, "GET", "/v1/models", seconds=seconds) as response:
        await raise_for_status(service, response)
        content = await read_whole(response)
    try:
        return str(json.loads(content)["data"][0]["id"])
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise CommandFailed(
            f"{service.target.title} lists no model",
            next_step="name one with --model",
        ) from error


async def _ask(
    service: ServiceAddress,
    model: str,
    conversation: list[Message],
    *,
    stream: bool,
    seconds: float,
) -> str:
    body: dict[str, Any] = {"model": model, "messages": conversation, "stream": stream}
    began = time.monotonic()
    first: float | None = None
    answer: list[str] = []
    async with requested(
        service, "POST", "/v1/chat/completions", seconds=seconds, json=body
    ) as response:
        await raise_for_status(service, response)
        if stream and "text/event-stream" in response.headers.get("content-type", ""):
            async for token in tokens_of(response.aiter_bytes()):
                first = first if first is not None else time.monotonic() - began
                answer.append(token)
                print(token, end="", flush=True)
        else:
            answer.append(_answer_of(await read_whole(response)))
            first = time.monotonic() - began
            print(answer[0], end="")
    print(flush=True)
    in_all = time.monotonic() - began
    begun = (
        f"first token after {first * 1000:.0f} ms, "
        if first is not None and stream
        else ""
    )
    print(
        f"answered by {service.responder(response)}: {begun}{in_all * 1000:.0f} ms in total",
        file=sys.stderr,
    )
    return "".join(answer)


def _answer_of(content: bytes) -> str:
    try:
        return str(json.loads(content)["choices"][0]["message"]["content"] or "")
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise CommandFailed(
            "the model returned a response that is not a chat completion",
            next_step="read the model's log",
        ) from error
