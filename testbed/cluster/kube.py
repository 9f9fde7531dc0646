"""The calls to a Kubernetes API server that the testbed needs.

They are plain HTTP with the administrator's certificate, so that no client library
changes the objects that this package sends. Objects are written by server-side apply
under one field manager, so repeating a write changes nothing.
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
# Statuses of a server in its first seconds, or while its store waits for CPU time.
SETTLING = {
    httpx.codes.NOT_FOUND,
    httpx.codes.TOO_MANY_REQUESTS,
    httpx.codes.INTERNAL_SERVER_ERROR,
    httpx.codes.SERVICE_UNAVAILABLE,
    httpx.codes.GATEWAY_TIMEOUT,
}
SETTLING_SECONDS = 60.0
# A machine that starts several clusters at once may delay a response for longer than
# the timeout of a call.
SILENCE_SECONDS = 120.0
WATCH_VARIABLE = "TESTBED_WATCH_SECONDS"
"""How long the server keeps a watch of the testbed's own controllers open, in seconds.

Without this parameter the server chooses 30 minutes or more.
"""
# The pause between two attempts to watch.
RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 0.2, 5.0

_CLUSTER_SCOPED = {
    "ClusterRole",
    "ClusterRoleBinding",
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
    """The API server refused a call. `code` is its HTTP status."""

    def __init__(self, action: str, answer: httpx.Response) -> None:
        self.code = answer.status_code
        try:
            message = answer.json()["message"]
        except (ValueError, KeyError, TypeError):
            message = answer.text
        super().__init__(f"{action}: {self.code} {message}")


def path_of(document: Mapping[str, Any]) -> str:
    """Return the path of one object."""
    metadata = document["metadata"]
    folder = collection(
        document["apiVersion"], document["kind"], metadata.get("namespace", "default")
    )
    return f"{folder}/{metadata['name']}"


def collection(api_version: str, kind: str, namespace: str | None = None) -> str:
    """Return the path of all objects of a kind, in one namespace or (None) in all."""
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    plural = _plural(kind.lower())
    if kind in _CLUSTER_SCOPED or namespace is None:
        return f"{root}/{plural}"
    return f"{root}/namespaces/{namespace}/{plural}"


def _plural(singular: str) -> str:
    if singular.endswith("s"):
        return f"{singular}es"
    if singular.endswith("y") and singular[-2] not in "aeiou":
        return f"{singular[:-1]}ies"
    return f"{singular}s"


def trust(authority: Authority) -> ssl.SSLContext:
    """Return the TLS settings of a cluster's administrator."""
    context = ssl.create_default_context(cafile=str(authority.ca))
    pair = authority.pair("admin")
    context.load_cert_chain(pair.certificate, pair.key)
    return context


class Kube:
    """A blocking client of one API server."""

    def __init__(self, server: str, authority: Authority) -> None:
        # Ignore proxy settings, because these servers run on this machine.
        self._http = httpx.Client(
            base_url=server, verify=trust(authority), timeout=SECONDS, trust_env=False
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def is_ready(self) -> bool:
        """Return whether the API server reports that it is ready."""
        try:
            return self._http.get("/readyz").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def apply(
        self, document: Mapping[str, Any], subresource: str = ""
    ) -> dict[str, Any]:
        """Apply one object (or its status), and return the stored object."""
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
        """Create one object. Return None if it exists already."""
        path = path_of(document).rsplit("/", 1)[0]
        answer = self._patiently(
            "POST", path, params={"fieldManager": FIELD_MANAGER}, json=document
        )
        return (
            None
            if answer.status_code == httpx.codes.CONFLICT
            else _body(f"create {path}", answer)
        )

    def get(self, path: str) -> dict[str, Any] | None:
        """Return one object, or None."""
        answer = self._answer("GET", path)
        return (
            None
            if answer.status_code == httpx.codes.NOT_FOUND
            else _body(f"get {path}", answer)
        )

    def list(self, path: str, **query: str) -> list[dict[str, Any]]:
        """Return every object of a collection."""
        return list(
            _body(f"list {path}", self._answer("GET", path, params=query))["items"]
        )

    def delete(self, path: str) -> None:
        """Request the deletion of one object. Do nothing if it is gone already."""
        answer = self._answer("DELETE", path)
        if answer.status_code != httpx.codes.NOT_FOUND:
            _body(f"delete {path}", answer)

    def evict(self, namespace: str, pod: str) -> None:
        """Request the eviction of a pod.

        The API server refuses it with 429 if a PodDisruptionBudget does not allow it.
        """
        path = f"{collection('v1', 'Pod', namespace)}/{pod}/eviction"
        metadata = {"namespace": namespace, "name": pod}
        answer = self._answer(
            "POST",
            path,
            json={"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata},
        )
        if answer.status_code != httpx.codes.NOT_FOUND:
            _body(f"evict {path}", answer)

    def _patiently(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Repeat a write that a server rejects in its first seconds.

        The server reports a new kind or namespace as established before it serves it.
        """
        deadline = time.monotonic() + SETTLING_SECONDS
        while (
            answer := self._answer(method, path, **request)
        ).status_code in SETTLING and time.monotonic() < deadline:
            time.sleep(0.1)
        return answer

    def _answer(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Repeat a request until the server responds.

        All requests here are safe to repeat. Raise StartFailed after a long time
        without a response.
        """
        deadline = time.monotonic() + SILENCE_SECONDS
        while True:
            try:
                return self._http.request(method, path, **request)
            except httpx.TransportError as error:
                if time.monotonic() > deadline:
                    url = self._http.base_url.join(path)
                    raise StartFailed(
                        f"{method} {url}: no answer for {SILENCE_SECONDS:.0f} s "
                        f"({type(error).__name__}: {error})"
                    ) from error
                time.sleep(0.1)


class KubeClient:
    """An asynchronous client of one API server, for the testbed's own controllers."""

    def __init__(self, server: str, authority: Authority) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        self._http = httpx.AsyncClient(
            base_url=server,
            verify=trust(authority),
            timeout=SECONDS,
            trust_env=False,
            limits=limits,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def changes(
        self, path: str
    ) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
        """Yield the objects of a collection and their changes until the server ends.

        The first item is ("LISTED", every object); later ones are ("ADDED" | "MODIFIED"
        | "DELETED", [the object]). Raise KubeError if the server refuses, for example
        with 410 if it no longer knows the changes since the list.
        """
        listed = _body(f"list {path}", await self._http.get(path))
        # Items of a list lack their kind, which is needed to write them again.
        shared = {
            "apiVersion": listed["apiVersion"],
            "kind": listed["kind"].removesuffix("List"),
        }
        yield "LISTED", [shared | item for item in listed["items"]]
        query = {
            "watch": "1",
            "resourceVersion": listed["metadata"]["resourceVersion"],
            "allowWatchBookmarks": "true",
        }
        if seconds := os.environ.get(WATCH_VARIABLE):
            query["timeoutSeconds"] = seconds
        async with self._http.stream(
            "GET", path, params=query, timeout=httpx.Timeout(None, connect=5.0)
        ) as answer:
            if answer.is_error:
                await answer.aread()
                raise KubeError(f"watch {path}", answer)
            async for line in answer.aiter_lines():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise KubeError(
                        f"watch {path}",
                        httpx.Response(
                            event["object"].get("code", 500), json=event["object"]
                        ),
                    )
                if event["type"] != "BOOKMARK":
                    yield event["type"], [event["object"]]

    async def patch_status(
        self, document: Mapping[str, Any], status: Mapping[str, Any]
    ) -> None:
        """Merge a change into the status of an object.

        Raise KubeError on a conflict. The watch then reports the other change.
        """
        await self.patch(document, {"status": status}, "/status")

    async def patch(
        self,
        document: Mapping[str, Any],
        change: Mapping[str, Any],
        subresource: str = "",
        *,
        strategic: bool = False,
    ) -> None:
        """Merge a change into an object.

        A strategic merge keeps the other items of lists that have keys, such as
        conditions of a pod.
        """
        path = f"{path_of(document)}{subresource}"
        kind = "strategic-merge-patch" if strategic else "merge-patch"
        answer = await self._http.patch(
            path,
            headers={"content-type": f"application/{kind}+json"},
            content=json.dumps(change),
        )
        _body(f"patch {path}", answer)

    async def get(
        self, api_version: str, kind: str, namespace: str, name: str
    ) -> dict[str, Any]:
        """Return one object. Raise KubeError, with 404 if it does not exist."""
        path = f"{collection(api_version, kind, namespace)}/{name}"
        return _body(f"get {path}", await self._http.get(path))

    async def token(
        self, namespace: str, account: str, audience: str | None, seconds: int
    ) -> str:
        """Return a new token of a ServiceAccount."""
        path = f"{collection('v1', 'ServiceAccount', namespace)}/{account}/token"
        spec: dict[str, Any] = {"expirationSeconds": seconds}
        if audience:
            spec["audiences"] = [audience]
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": spec,
        }
        answer = await self._http.post(path, json=request)
        return str(_body(f"create {path}", answer)["status"]["token"])

    async def create(self, document: Mapping[str, Any]) -> None:
        """Create one object. Do nothing if it exists already."""
        path = path_of(document).rsplit("/", 1)[0]
        answer = await self._http.post(path, json=document)
        if answer.status_code != httpx.codes.CONFLICT:
            _body(f"create {path}", answer)

    async def delete(self, document: Mapping[str, Any]) -> None:
        """Request the deletion of one object. Do nothing if it is gone already."""
        path = path_of(document)
        answer = await self._http.delete(path)
        if answer.status_code != httpx.codes.NOT_FOUND:
            _body(f"delete {path}", answer)


async def follow(
    watcher: KubeClient,
    path: str,
    received: Callable[[str, list[dict[str, Any]]], Awaitable[None]],
) -> None:
    """Pass the objects of a collection and each change to `received`, forever.

    The values are those of `KubeClient.changes`. Errors of the server are retried.
    """
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


def write_kubeconfig(
    path: Path, name: str, server: str, authority: Authority, user: str
) -> str:
    """Write a kubeconfig for the client certificate `user`, with all data inline.

    Return its text.
    """

    def inline(file: Path) -> str:
        return base64.b64encode(file.read_bytes()).decode()

    pair = authority.pair(user)
    text = dump_all(
        [
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [
                    {
                        "name": name,
                        "cluster": {
                            "server": server,
                            "certificate-authority-data": inline(authority.ca),
                        },
                    }
                ],
                "users": [
                    {
                        "name": user,
                        "user": {
                            "client-certificate-data": inline(pair.certificate),
                            "client-key-data": inline(pair.key),
                        },
                    }
                ],
                "contexts": [
                    {"name": name, "context": {"cluster": name, "user": user}}
                ],
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
