"""The engines of running pods, and the shutdown that a kubelet would perform.

A running pod has an engine at its own address, and becomes ready only after the engine
listens. When the pod is deleted, its preStop sleep passes first. Then the engine
refuses connections and finishes its requests, as after SIGTERM. The end of the grace
period aborts the remaining requests. The pod is removed when its engine has ended. If
the pod disappears first, because it was deleted by force or the watch missed its end,
its engine still shuts down in this way, as a container does. kwok simulates everything
else (`testbed/cluster/kwok-stages.yaml`).
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from testbed.cluster.kube import KubeClient, KubeError, collection, follow
from testbed.cluster.pki import Authority, Pair
from testbed.dataplane.engine import MODEL, PORT, application
from testbed.dataplane.kubelet_api import ContainerLog, ServedPod, serve_kubelet
from testbed.dataplane.load import RUNNING_MAX, VLLM, EngineLoad
from testbed.node.images import is_real

# An annotation of pods, "true" while the pod has an engine in this process. The engine
# then decides when the pod is removed.
SERVED = "testbed.modelplane.ai/served"
DELETE_AFTER = "testbed.modelplane.ai/delete-after"
REFUSES = "testbed.modelplane.ai/refuses"
"""An annotation of pods: with "true", the engine refuses new connections.

The pod stays ready, as between two readiness probes of a kubelet.
"""
RETRY_SECONDS = 1.0
# Longer than a gateway keeps an idle connection, which is 90 s for Traefik. If the
# engine closed the connection first, the gateway might send a POST at the same moment.
# It does not repeat a POST, and responds with 502. A slow machine makes this more
# likely.
IDLE_SECONDS = 120
# Flags of vLLM and SGLang with the model's name. The first flag that is set takes
# precedence.
MODEL_FLAGS = ("--served-model-name", "--model", "--model-path")
# Flags of vLLM, SGLang and trtllm-serve with the number of requests that run at once.
LIMIT_FLAGS = ("--max-num-seqs", "--max-running-requests", "--max_batch_size")
_IP_FREEBIND = 15
"""The option of Linux by which a server may listen at an address of another host."""
ENGINE_LABELS = ("llm-d.ai/engine-type", "inference.networking.k8s.io/engine-type")

Document = dict[str, Any]


class _EngineServer(uvicorn.Server):
    """One of many servers in a process.

    It installs no signal handlers, because the process does.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()

    def close_listeners(self) -> None:
        """Refuse new connections, and keep the others."""
        for server in self.servers:
            server.close()
        self.servers.clear()

    async def listen(self, listener: socket.socket) -> None:
        """Accept connections again."""
        loop = asyncio.get_running_loop()
        self.servers.append(await loop.create_server(self._protocol, sock=listener))

    def _protocol(self) -> asyncio.Protocol:
        protocol: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        return protocol

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class SimulatedEngine:
    """The engine of one pod, or an engine outside the fleet.

    It serves HTTPS if it has a certificate.
    """

    def __init__(
        self,
        address: str,
        port: int = PORT,
        model: str = MODEL,
        certificate: Pair | None = None,
        *,
        engine: str = VLLM,
        running_max: int = RUNNING_MAX,
    ) -> None:
        self.log = ContainerLog()
        self._address = (address, port)
        self._refuses = False
        listener = _listener(address, port)
        config = uvicorn.Config(
            _logged(application(model, engine, EngineLoad(running_max)), self.log),
            log_level="critical",
            access_log=False,
            lifespan="off",
            timeout_keep_alive=IDLE_SECONDS,
            ssl_certfile=certificate.certificate if certificate else None,
            ssl_keyfile=certificate.key if certificate else None,
        )
        self._server = _EngineServer(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))

    async def listens(self) -> None:
        """Wait until the engine accepts connections."""
        await self._server.listens.wait()
        address, port = self._address
        self.log.write(f"INFO:     Uvicorn running on http://{address}:{port}")

    @property
    def refuses(self) -> bool:
        """Whether the engine refuses new connections."""
        return self._refuses

    async def refuse(self, *, refuses: bool) -> None:
        """Stop or start to accept connections. Running requests continue."""
        self._refuses = refuses
        if refuses:
            self._server.close_listeners()
        else:
            await self._server.listen(_listener(*self._address))

    async def stop(self, grace_seconds: float) -> None:
        """Refuse new connections, and abort running requests after the grace period."""
        self._server.config.timeout_graceful_shutdown = max(0, round(grace_seconds))
        self._server.should_exit = True
        await asyncio.wait([self._serving])
        self.log.end()


def _listener(address: str, port: int) -> socket.socket:
    # Create the socket with the protocol TCP, because asyncio disables Nagle's
    # algorithm only then. Otherwise the body of a response would wait 40 ms for an
    # acknowledgement.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    # A pod may get the address of a pod that has just ended.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    # The address may still belong to the network namespace of a pod that is ending.
    listener.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
    listener.bind((address, port))
    return listener


class ServedPods:
    """The engines of one cluster's pods."""

    def __init__(self, watcher: KubeClient) -> None:
        self._watcher = watcher
        self._served: dict[str, ServedPod] = {}
        self._engines: dict[str, SimulatedEngine] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._without_pod: set[asyncio.Task[None]] = set()
        """Ending engines whose pods are gone. A task must be referenced to continue."""

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            await follow(self._watcher, collection("v1", "Pod"), self.received)
        finally:
            await self._watcher.close()

    def served(self) -> Iterable[ServedPod]:
        """Return the pods that have an engine."""
        return self._served.values()

    async def received(self, kind: str, pods: list[Document]) -> None:
        """Handle an item of `KubeClient.changes`."""
        if kind == "LISTED":
            here = {pod["metadata"]["uid"] for pod in pods}
            for uid in self._engines.keys() - here:
                await self._gone(uid)
        for pod in pods:
            await self._changed(pod, deleted=kind == "DELETED")

    async def _changed(self, pod: Document, *, deleted: bool) -> None:
        if is_real(pod):
            return  # the testbed's kubelet ends its programs (`testbed/node/`)
        metadata = pod["metadata"]
        uid, ends = metadata["uid"], "deletionTimestamp" in metadata
        if deleted or not (_runs(pod) or ends):
            await self._gone(uid)
        elif ends and (
            uid in self._engines
            or (metadata.get("annotations") or {}).get(SERVED) == "true"
        ):
            if uid not in self._ending:
                self._ending[uid] = asyncio.create_task(
                    self._end(pod, self._engines.get(uid))
                )
        elif not ends and _serves(pod) and uid not in self._engines:
            self._engines[uid] = engine = _engine_of(pod)
            await engine.listens()
            self._served[uid] = ServedPod(
                metadata.get("namespace", ""),
                metadata.get("name", ""),
                pod["status"]["podIP"],
                {_serving_container(pod): engine.log},
            )
            await self._annotate(pod, {SERVED: "true"})
        elif uid in self._engines and _refuses(pod) != self._engines[uid].refuses:
            await self._engines[uid].refuse(refuses=_refuses(pod))

    async def _end(self, pod: Document, engine: SimulatedEngine | None) -> None:
        """Shut down the engine of a deleted pod as its spec requires, and remove it."""
        loop = asyncio.get_running_loop()
        grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        begun = loop.time()
        if engine:
            await asyncio.sleep(min(sleep_seconds(pod), grace))
            await engine.stop(grace - (loop.time() - begun))
        await self._annotate(pod, {SERVED: "ended", DELETE_AFTER: "0s"})

    async def _gone(self, uid: str) -> None:
        """Stop the engine of a pod that is gone or does not run.

        An ending engine continues until its requests or its grace period have ended.
        """
        ending, engine = self._ending.pop(uid, None), self._engines.pop(uid, None)
        self._served.pop(uid, None)
        if ending:
            self._without_pod.add(ending)
            ending.add_done_callback(self._without_pod.discard)
        elif engine:
            await engine.stop(0)

    async def _annotate(self, pod: Document, annotations: Mapping[str, str]) -> None:
        while True:
            try:
                await self._watcher.patch(
                    pod, {"metadata": {"annotations": annotations}}
                )
            except KubeError as error:
                if error.code == httpx.codes.NOT_FOUND:
                    return
                print(f"{type(error).__name__} {error}", flush=True)
            except httpx.TransportError as error:
                print(f"{type(error).__name__} {error}", flush=True)
            else:
                return
            await asyncio.sleep(RETRY_SECONDS)


def sleep_seconds(pod: Document) -> int:
    """Return how long a deleted pod still serves, in seconds.

    This is the time until its first main container gets SIGTERM.
    """
    hooks = [
        ((each.get("lifecycle") or {}).get("preStop") or {}).get("sleep") or {}
        for each in pod["spec"]["containers"]
    ]
    return min(int(hook.get("seconds", 0)) for hook in hooks)


def served_model(pod: Document) -> str:
    """Return the name under which a pod serves its model, from its arguments."""
    return _flag(pod, MODEL_FLAGS) or MODEL


def engine_of(pod: Document) -> str:
    """Return the name of a pod's engine, from the labels that pickers read."""
    found = pod["metadata"].get("labels") or {}
    return next((found[each] for each in ENGINE_LABELS if each in found), VLLM)


def _engine_of(pod: Document) -> SimulatedEngine:
    limit = _flag(pod, LIMIT_FLAGS)
    return SimulatedEngine(
        pod["status"]["podIP"],
        model=served_model(pod),
        engine=engine_of(pod),
        running_max=int(limit) if limit.isdigit() else RUNNING_MAX,
    )


def _refuses(pod: Document) -> bool:
    annotations = pod["metadata"].get("annotations") or {}
    return bool(annotations.get(REFUSES) == "true")


def _flag(pod: Document, flags: Iterable[str]) -> str:
    words = [
        word
        for each in pod["spec"]["containers"]
        for word in (*(each.get("command") or ()), *(each.get("args") or ()))
    ]
    for flag in flags:
        for word, following in zip_longest(words, words[1:], fillvalue=""):
            if word.startswith(f"{flag}="):
                return str(word.removeprefix(f"{flag}="))
            if word == flag and following:
                return str(following)
    return ""


def _runs(pod: Document) -> bool:
    status = pod.get("status") or {}
    waiting = [
        each
        for each in status.get("containerStatuses") or ()
        if "waiting" in (each.get("state") or {})
    ]
    return (
        status.get("phase") == "Running" and bool(status.get("podIP")) and not waiting
    )


def _serves(pod: Document) -> bool:
    """Return whether a container or sidecar of the pod declares the port of engines."""
    return bool(_serving_container(pod))


def _serving_container(pod: Document) -> str:
    containers = [
        *pod["spec"]["containers"],
        *(pod["spec"].get("initContainers") or ()),
    ]
    serving = [
        str(each["name"])
        for each in containers
        if PORT in [port["containerPort"] for port in each.get("ports") or ()]
    ]
    return serving[0] if serving else ""


def _logged(engine: ASGIApp, log: ContainerLog) -> ASGIApp:
    """Write a line about each response."""

    async def logged(scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                request = f"{scope['method']} {scope['path']} HTTP/1.1"
                log.write(f'INFO:     "{request}" {message["status"]}')
            await send(message)

        await engine(scope, receive, sending)

    return logged


async def serve_cluster(server: str, pki: str, kubelet: str) -> None:
    """Serve the engines of a cluster's pods, and a kubelet at a Unix socket."""
    authority = Authority(Path(pki))
    pods = ServedPods(KubeClient(server, authority))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(pods.run())
        tasks.create_task(serve_kubelet(pods.served, authority, kubelet))
