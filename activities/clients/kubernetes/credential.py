"""The bearer token of a session: fixed, or renewed by a credential plugin or a cloud.

This module runs the plugin itself. The SDK reads the plugin's whole output without a
limit, and leaves the plugin running after a timeout.
"""

import asyncio
import contextlib
import json
import os
import signal
import time
from asyncio import StreamReader, StreamReaderProtocol
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from activities.clients.kubernetes.kubeconfig import ApiServerAccess, ExecPlugin
from activities.clients.outward.answers import read_object
from api_types.errors import ClusterUnreachable, CredentialsInvalid

_PLUGIN_SECONDS = 30.0
_PLUGIN_OUTPUT_MAX = 1 << 20
# A token is renewed this long before it expires.
_TOKEN_MARGIN_SECONDS = 60.0


class BearerCredential:
    def __init__(self, cluster: str, access: ApiServerAccess) -> None:
        self._cluster = cluster
        self._plugin = access.plugin
        self._tokens = access.tokens
        self._token = access.token
        self._expires_at = (
            float("-inf") if access.plugin or access.tokens else float("inf")
        )
        self._renewing = asyncio.Lock()

    def last(self) -> str:
        """Return the token that was sent last, even if it has expired."""
        return self._token

    async def token(self) -> str:
        """Return a token that has not expired.

        Raises CredentialsInvalid if the plugin returns no token.
        """
        await self._have(_TOKEN_MARGIN_SECONDS)
        return self._token

    async def token_for(self, seconds: float) -> str:
        """Return a token that is valid for at least `seconds`.

        Raises CredentialsInvalid if the plugin returns no token that is valid for so
        long.
        """
        await self._have(seconds)
        if time.time() > self._expires_at - seconds and self._plugin:
            raise CredentialsInvalid(
                f"cluster {self._cluster}: the credential plugin "
                f"{self._plugin.command!r} returns tokens that expire in less than "
                f"{seconds:.0f} s, while helm may still be running; configure a longer "
                "token lifetime"
            )
        return self._token

    async def replace(self, refused: str) -> bool:
        """Renew the token that the API server rejected.

        Returns False if there is no other token. Raises CredentialsInvalid.
        """
        if self._tokens is None:
            return False
        async with self._renewing:
            if self._token == refused:
                self._token, self._expires_at = await self._tokens(
                    _TOKEN_MARGIN_SECONDS, refused=refused
                )
        return self._token != refused

    async def _have(self, seconds: float) -> None:
        if self._tokens and time.time() > self._expires_at - seconds:
            async with self._renewing:
                if time.time() > self._expires_at - seconds:
                    self._token, self._expires_at = await self._tokens(seconds)
        if self._plugin and time.time() > self._expires_at - seconds:
            async with self._renewing:
                if time.time() > self._expires_at - seconds:
                    await self._renew(self._plugin)

    async def _renew(self, plugin: ExecPlugin) -> None:
        subject = f"cluster {self._cluster}: the credential plugin {plugin.command!r}"
        try:
            async with asyncio.timeout(_PLUGIN_SECONDS):
                status = await _run(plugin)
            token = str(status.get("token") or "")
            expires = status.get("expirationTimestamp")
            expires_at = float("inf")
            if expires:
                expires_at = datetime.fromisoformat(str(expires)).timestamp()
        except TimeoutError:
            raise ClusterUnreachable(
                f"{subject} did not finish within {_PLUGIN_SECONDS:.0f} s"
            ) from None
        except _PluginFailed as error:
            raise CredentialsInvalid(
                f"{subject} failed ({error}); run it on the worker to see why"
            ) from None
        except (OSError, ValueError, OverflowError) as error:
            # The plugin's text may contain the token.
            raise CredentialsInvalid(
                f"{subject} failed ({type(error).__name__}); "
                "run it on the worker to see why"
            ) from None
        if not token:
            raise CredentialsInvalid(
                f"{subject} returned no token; "
                "client certificates from plugins are not supported"
            )
        self._token, self._expires_at = token, expires_at


class _PluginFailed(Exception):
    """The plugin returned no usable output. The message contains none of it."""


async def _run(plugin: ExecPlugin) -> dict[str, Any]:
    """Return the status that the plugin writes.

    Raises _PluginFailed, ValueError (the output is not JSON) and OSError (the plugin
    cannot be started).
    """
    request = {
        "apiVersion": plugin.api_version,
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }
    environment = {
        **os.environ,
        **plugin.env,
        "KUBERNETES_EXEC_INFO": json.dumps(request),
    }
    async with _started(plugin, environment) as (process, source):
        output = await _read(source)
        code = await process.wait()
    if code:
        raise _PluginFailed(f"exit code {code}")
    found = read_object(output)
    if found.get("apiVersion") != plugin.api_version:
        raise _PluginFailed(f"its output is not of {plugin.api_version}")
    status = found.get("status")
    return status if isinstance(status, dict) else {}


@contextlib.asynccontextmanager
async def _started(
    plugin: ExecPlugin, environment: dict[str, str]
) -> AsyncIterator[tuple[Process, StreamReader]]:
    # The plugin gets its own pipe and process group. Stopping a script does not stop
    # its children, and a `Process` would wait until they close its pipe.
    source, sink = os.pipe()
    output = StreamReader()
    with contextlib.ExitStack() as opened:
        with os.fdopen(sink, "wb"):
            reader = os.fdopen(source, "rb")
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: StreamReaderProtocol(output), reader
            )
            opened.callback(transport.close)
            process = await asyncio.create_subprocess_exec(
                plugin.command,
                *plugin.args,
                env=environment,
                stdin=DEVNULL,
                stdout=sink,
                stderr=DEVNULL,
                start_new_session=True,
            )
        async with contextlib.AsyncExitStack() as unless_read:
            unless_read.push_async_callback(_kill, process)
            yield process, output
            unless_read.pop_all()


async def _kill(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


async def _read(source: StreamReader) -> bytes:
    output = bytearray()
    while chunk := await source.read(1 << 16):
        output += chunk
        if len(output) > _PLUGIN_OUTPUT_MAX:
            raise _PluginFailed(f"it wrote more than {_PLUGIN_OUTPUT_MAX >> 20} MiB")
    return bytes(output)
