"""The few calls to a Kubernetes API server that the testbed needs: apply, read, delete, watch.

Plain HTTP with the administrator's certificate, so that every object travels exactly as it is written in this package and no client
library's idea of a version stands between. Writing is always server-side apply under one field manager: repeating it changes nothing.
"""

import asyncio
import base64
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from testbed.cluster.pki import Authority
from testbed.documents import dump_all, write_text
from testbed.waiting import StartFailed

FIELD_MANAGER = "testbed"
SECONDS = httpx.Timeout(20.0, connect=5.0)
# What a server answers in its first seconds, or when its store waits for a processor.
SETTLING = {
    httpx.codes.NOT_FOUND,
    httpx.codes.TOO_MANY_REQUESTS,
    httpx.codes.INTERNAL_SERVER_ERROR,
    httpx.codes.SERVICE_UNAVAILABLE,
    httpx.codes.GATEWAY_TIMEOUT,
}
SETTLING_SECONDS = 60.0
# A machine that starts several clusters at once may leave one without an answer for longer than a call waits.
SILENCE_SECONDS = 120.0
WATCH_VARIABLE = "TESTBED_WATCH_SECONDS"
"""How long the server keeps a watch of the testbed's own controllers, in seconds; if unset as long as it likes: 30 minutes or more."""
# Between two attempts to watch.
RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 0.2, 5.0

# Collections that are not the kind in lower case with an "s".
_PLURALS = {"DeviceClass": "deviceclasses", "GatewayClass": "gatewayclasses", "StorageClass": "storageclasses"}
_CLUSTER_SCOPED = {
    "CustomResourceDefinition",
    "DeviceClass",
    "GatewayClass",
    "MutatingWebhookConfiguration",
    "Namespace",
    "Node",
    "PersistentVolume",
    "ResourceSlice",
    "StorageClass",
    "ValidatingWebhookConfiguration",
}


class KubeError(Exception):
    """The API server refused a call; `code` is its HTTP status."""

    def __init__(self, action: str, answer: httpx.Response) -> None:
        self.code = answer.status_code
        try:
            message = answer.json()["message"]
        except (ValueError, KeyError, TypeError):
            message = answer.text
        super().__init__(f"{action}: {self.code} {message}")


def path_of(document: Mapping[str, Any]) -> str:
    """Answer the path of one object."""
    metadata = document["metadata"]
    folder = collection(document["apiVersion"], document["kind"], metadata.get("namespace", "default"))
    return f"{folder}/{metadata['name']}"


def collection(api_version: str, kind: str, namespace: str | None = None) -> str:
    """Answer the path of all objects of a kind, in one namespace or (None) in all."""
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    if kind in _CLUSTER_SCOPED or namespace is None:
        return f"{root}/{plural}"
    return f"{root}/namespaces/{namespace}/{plural}"


def trust(authority: Authority) -> ssl.SSLContext:
    """Make the TLS settings of a cluster's administrator."""
    context = ssl.create_default_context(cafile=str(authority.ca))
    pair = authority.pair("admin")
    context.load_cert_chain(pair.certificate, pair.key)
    return context


class Kube:
    """One API server, for callers that may block."""

    def __init__(self, server: str, authority: Authority) -> None:
        # The environment's proxies are for the world outside; these servers are on this machine.
        self._http = httpx.Client(base_url=server, verify=trust(authority), timeout=SECONDS, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._http.close()

    def is_ready(self) -> bool:
        """Whether the API server says that it is ready."""
        try:
            return self._http.get("/readyz").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def apply(self, document: Mapping[str, Any], subresource: str = "") -> dict[str, Any]:
        """Apply one object (or its status) whole and answer how it is now stored."""
        path = path_of(document) + (f"/{subresource}" if subresource else "")
        answer = self._patiently(
            "PATCH",
            path,
            params={"fieldManager": FIELD_MANAGER, "force": "true"},
            headers={"content-type": "application/apply-patch+yaml"},
            content=json.dumps(document),
        )
        return _body(f"apply {path}", answer)

    def create(self, document: Mapping[str, Any]) -> dict[str, Any] | None:
        """Create one object; None when it is already there and was left as it is."""
        path = path_of(document).rsplit("/", 1)[0]
        answer = self._patiently("POST", path, params={"fieldManager": FIELD_MANAGER}, json=document)
        return None if answer.status_code == httpx.codes.CONFLICT else _body(f"create {path}", answer)

    def get(self, path: str) -> dict[str, Any] | None:
        """Read one object; None when there is none."""
        answer = self._answer("GET", path)
        return None if answer.status_code == httpx.codes.NOT_FOUND else _body(f"get {path}", answer)

    def list(self, path: str, **query: str) -> list[dict[str, Any]]:
        """Read every object of a collection."""
        return list(_body(f"list {path}", self._answer("GET", path, params=query))["items"])

    def delete(self, path: str) -> None:
        """Ask for the deletion of one object; nothing happens when it is gone already."""
        answer = self._answer("DELETE", path)
        if answer.status_code != httpx.codes.NOT_FOUND:
            _body(f"delete {path}", answer)

    def evict(self, namespace: str, pod: str) -> None:
        """Ask for the eviction of a pod; refused with 429 while a budget does not allow it."""
        path = f"{collection('v1', 'Pod', namespace)}/{pod}/eviction"
        metadata = {"namespace": namespace, "name": pod}
        answer = self._answer("POST", path, json={"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata})
        if answer.status_code != httpx.codes.NOT_FOUND:
            _body(f"evict {path}", answer)

    def _patiently(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Repeat a write that a server in its first seconds refuses: a kind or namespace is established before it is served."""
        deadline = time.monotonic() + SETTLING_SECONDS
        while (answer := self._answer(method, path, **request)).status_code in SETTLING and time.monotonic() < deadline:
            time.sleep(0.1)
        return answer

    def _answer(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Ask until there is an answer, for no call here does more when it arrives twice. Raises StartFailed after a long silence."""
        deadline = time.monotonic() + SILENCE_SECONDS
        while True:
            try:
                return self._http.request(method, path, **request)
            except httpx.TransportError as error:
                if time.monotonic() > deadline:
                    url = self._http.base_url.join(path)
                    raise StartFailed(f"{method} {url}: no answer for {SILENCE_SECONDS:.0f} s ({type(error).__name__}: {error})") from error
                time.sleep(0.1)


class Watcher:
    """One API server, for the testbed's own controllers."""

    def __init__(self, server: str, authority: Authority) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        self._http = httpx.AsyncClient(base_url=server, verify=trust(authority), timeout=SECONDS, trust_env=False, limits=limits)

    async def close(self) -> None:
        """Drop every connection."""
        await self._http.aclose()

    async def changes(self, path: str) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
        """Yield what a collection holds and how it changes, until the server ends the watch.

        The first item is ("LISTED", every object); later ones are ("ADDED" | "MODIFIED" | "DELETED", [the object]). Raises KubeError when
        the server refuses, among others with 410 when it no longer knows what happened since the list.
        """
        listed = _body(f"list {path}", await self._http.get(path))
        # Objects in a list come without their kind, which is needed to write to them again.
        shared = {"apiVersion": listed["apiVersion"], "kind": listed["kind"].removesuffix("List")}
        yield "LISTED", [shared | item for item in listed["items"]]
        query = {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"], "allowWatchBookmarks": "true"}
        if seconds := os.environ.get(WATCH_VARIABLE):
            query["timeoutSeconds"] = seconds
        async with self._http.stream("GET", path, params=query, timeout=httpx.Timeout(None, connect=5.0)) as answer:
            if answer.is_error:
                await answer.aread()
                raise KubeError(f"watch {path}", answer)
            async for line in answer.aiter_lines():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise KubeError(f"watch {path}", httpx.Response(event["object"].get("code", 500), json=event["object"]))
                if event["type"] != "BOOKMARK":
                    yield event["type"], [event["object"]]

    async def patch_status(self, document: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Merge into the status of an object that was read before; a conflict is the caller's to see again."""
        await self.patch(document, {"status": status}, "/status")

    async def patch(self, document: Mapping[str, Any], change: Mapping[str, Any], subresource: str = "") -> None:
        """Merge into an object that was read before."""
        path = f"{path_of(document)}{subresource}"
        answer = await self._http.patch(path, headers={"content-type": "application/merge-patch+json"}, content=json.dumps(change))
        _body(f"patch {path}", answer)

    async def create(self, document: Mapping[str, Any]) -> None:
        """Create one object; nothing happens when it is already there."""
        path = path_of(document).rsplit("/", 1)[0]
        answer = await self._http.post(path, json=document)
        if answer.status_code != httpx.codes.CONFLICT:
            _body(f"create {path}", answer)

    async def delete(self, document: Mapping[str, Any]) -> None:
        """Ask for the deletion of one object; nothing happens when it is gone already."""
        path = path_of(document)
        answer = await self._http.delete(path)
        if answer.status_code != httpx.codes.NOT_FOUND:
            _body(f"delete {path}", answer)


async def follow(watcher: Watcher, path: str, received: Callable[[str, list[dict[str, Any]]], Awaitable[None]]) -> None:
    """Hand over all that a collection holds and each change, as `Watcher.changes` gives them; without end, whatever the server does."""
    pause = RETRY_SECONDS_MIN
    while True:
        try:
            async for kind, items in watcher.changes(path):
                await received(kind, items)
                pause = RETRY_SECONDS_MIN
        except (httpx.TransportError, KubeError) as error:
            print(f"{path}: {type(error).__name__} {error}", flush=True)
            await asyncio.sleep(pause)
            pause = min(RETRY_SECONDS_MAX, pause * 2)


def write_kubeconfig(path: Path, name: str, server: str, authority: Authority, user: str) -> str:
    """Write a kubeconfig for the client certificate `user`, everything inline, and answer its text."""

    def inline(file: Path) -> str:
        return base64.b64encode(file.read_bytes()).decode()

    pair = authority.pair(user)
    text = dump_all(
        [
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": inline(authority.ca)}}],
                "users": [
                    {"name": user, "user": {"client-certificate-data": inline(pair.certificate), "client-key-data": inline(pair.key)}}
                ],
                "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
                "current-context": name,
            }
        ]
    )
    write_text(path, text)
    return text


def _body(action: str, answer: httpx.Response) -> dict[str, Any]:
    if answer.is_error:
        raise KubeError(action, answer)
    body: dict[str, Any] = answer.json()
    return body
