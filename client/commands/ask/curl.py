"""`modelplane curl`: any request to a ModelService through the control gateway."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from client.asking.requests import checked_path, read_headers, requested
from client.asking.service import find_service
from client.commands import options
from client.failures import ExitCode
from fleet_client.errors import Refused
from fleet_client.refs.targets import Target, kind_named

_REQUEST_SECONDS = 300.0
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def curl(
    service: Annotated[str, typer.Argument(help="The ModelService.")],
    path: Annotated[
        str, typer.Argument(help="Path below the service, such as /v1/models.")
    ],
    *,
    namespace: options.Namespace = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--request", "-X", help="Method; POST with --data.", show_default=False
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data", "-d", help="Body; `@FILE` reads a file.", show_default=False
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", help="Header `Name: value`. May be repeated."),
    ] = None,
    include: Annotated[
        bool,
        typer.Option("--include", "-i", help="Show the headers of the answer too."),
    ] = False,
    gateway: options.Gateway = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", min=0.1, help="How long to wait for an answer, in seconds."
        ),
    ] = _REQUEST_SECONDS,
) -> None:
    """Send a request to a ModelService.

    The body is on standard output; the status and the endpoint that answered on
    standard error. The exit code is 1 for status 400 and above.

    For example:
      modelplane curl demo /v1/models
      modelplane curl demo /v1/completions -d '{"model": "demo", "prompt": "Hello"}'
    """
    verb = (method or ("GET" if data is None else "POST")).upper()
    if verb not in _METHODS:
        raise Refused(
            f"{verb!r} is not a method", next_step=f"use one of {', '.join(_METHODS)}"
        )
    headers = read_headers(header or [])
    content = _body(data)
    if content is not None and not any(
        name.lower() == "content-type" for name in headers
    ):
        headers["Content-Type"] = "application/json"
    target = Target.of(
        kind_named("ModelService"), namespace, service.removeprefix("ms/")
    )
    status = asyncio.run(
        _curl(
            target,
            verb,
            checked_path(path),
            content,
            headers,
            gateway=gateway,
            seconds=timeout,
            include=include,
        )
    )
    if status >= 400:  # noqa: PLR2004 - the first status of HTTP that is an error
        raise typer.Exit(ExitCode.FAILED)


def _body(data: str | None) -> bytes | None:
    if data is None or not data.startswith("@"):
        return None if data is None else data.encode()
    try:
        return Path(data[1:]).read_bytes()
    except OSError as error:
        raise Refused(
            f"{data[1:]} cannot be read: {error.strerror}",
            next_step="name a file that exists; nothing was sent",
        ) from error


def _write(chunk: bytes) -> None:
    """Write a part of the body.

    On a terminal, control characters are shown instead of obeyed.
    """
    if sys.stdout.isatty():
        print(chunk.decode(errors="replace"), end="", flush=True)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


async def _curl(
    target: Target,
    method: str,
    path: str,
    content: bytes | None,
    headers: dict[str, str],
    *,
    gateway: str | None,
    seconds: float,
    include: bool,
) -> int:
    service = await find_service(target, gateway)
    async with requested(
        service, method, path, seconds=seconds, content=content, headers=headers
    ) as response:
        print(
            f"{response.status_code} {response.reason_phrase} from {service.responder(response)}",
            file=sys.stderr,
        )
        if include:
            for name, value in response.headers.items():
                print(f"{name}: {value}", file=sys.stderr)
            print(file=sys.stderr)
        last = b""
        async for chunk in response.aiter_bytes():
            _write(chunk)
            last = chunk or last
        if last and not last.endswith(b"\n") and sys.stdout.isatty():
            print(flush=True)  # let the prompt begin on its own line
        return response.status_code
