"""What a kubelet and an engine do for each pod of a cluster, as far as requests can tell.

A pod that runs has an engine at its own address; it is ready only when that listens. Once the pod is deleted, its preStop sleep goes by as
if nothing had happened; then the engine, as one that gets SIGTERM, refuses connections and ends the requests that it has, and the end of
the grace period cuts what is left. The pod is gone when its engine is; where the pod is gone first, because it was deleted by force or the
watch has missed its end, an engine that is ending goes on until then, as a container does. kwok plays everything else
(`testbed/cluster/kwok-stages.yaml`).
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from testbed.cluster.kube import KubeError, Watcher, collection, follow
from testbed.cluster.pki import Authority, Pair
from testbed.dataplane.engine import MODEL, PORT, application

# On a pod: "true" while it has an engine here, which then decides when the pod ends.
SERVED = "testbed.modelplane.ai/served"
DELETE_AFTER = "testbed.modelplane.ai/delete-after"
RETRY_SECONDS = 1.0
# Longer than a gateway keeps a connection that no request uses: Traefik does for 90 s. An engine that closed it first could do so just when
# a request is sent, and the gateway sends no POST a second time: it answers 502. The slower the machine is, the more often.
IDLE_SECONDS = 120
# Of vLLM and SGLang; the first one wins.
MODEL_FLAGS = ("--served-model-name", "--model", "--model-path")

Document = dict[str, Any]


class _Server(uvicorn.Server):
    """A server among many in one process: signals are for the process."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Engine:
    """The engine of one pod, or one outside of the fleet; with a certificate it speaks TLS."""

    def __init__(self, address: str, port: int = PORT, model: str = MODEL, certificate: Pair | None = None) -> None:
        # Named as TCP, for only then asyncio sends each write at once; the body of an answer would wait 40 ms for an acknowledgement.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        # A pod may get the address of one that has just gone.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((address, port))
        config = uvicorn.Config(
            application(model),
            log_level="critical",
            access_log=False,
            lifespan="off",
            timeout_keep_alive=IDLE_SECONDS,
            ssl_certfile=certificate.certificate if certificate else None,
            ssl_keyfile=certificate.key if certificate else None,
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))

    async def listens(self) -> None:
        """Wait until a request would be answered."""
        await self._server.listens.wait()

    async def stop(self, grace_seconds: float) -> None:
        """Refuse connections at once, let the requests in flight end, and cut them at the end of the grace period."""
        self._server.config.timeout_graceful_shutdown = max(0, round(grace_seconds))
        self._server.should_exit = True
        await asyncio.wait([self._serving])


class ServedPods:
    """The engines of one cluster's pods."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._engines: dict[str, Engine] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._without_pod: set[asyncio.Task[None]] = set()
        """Engines that are ending and whose pods are gone already; only a task that is kept goes on."""

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            await follow(self._watcher, collection("v1", "Pod"), self.received)
        finally:
            await self._watcher.close()

    async def received(self, kind: str, pods: list[Document]) -> None:
        """Follow what the watch says, as `Watcher.changes` gives it."""
        if kind == "LISTED":
            here = {pod["metadata"]["uid"] for pod in pods}
            for uid in self._engines.keys() - here:
                await self._gone(uid)
        for pod in pods:
            await self._changed(pod, deleted=kind == "DELETED")

    async def _changed(self, pod: Document, *, deleted: bool) -> None:
        metadata = pod["metadata"]
        uid, ends = metadata["uid"], "deletionTimestamp" in metadata
        if deleted or not (_runs(pod) or ends):
            await self._gone(uid)
        elif ends and (uid in self._engines or (metadata.get("annotations") or {}).get(SERVED) == "true"):
            if uid not in self._ending:
                self._ending[uid] = asyncio.create_task(self._end(pod, self._engines.get(uid)))
        elif not ends and _serves(pod) and uid not in self._engines:
            self._engines[uid] = engine = Engine(pod["status"]["podIP"], model=served_model(pod))
            await engine.listens()
            await self._annotate(pod, {SERVED: "true"})

    async def _end(self, pod: Document, engine: Engine | None) -> None:
        """Stop the engine of a deleted pod as its spec says, and let the pod go."""
        loop = asyncio.get_running_loop()
        grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        begun = loop.time()
        if engine:
            await asyncio.sleep(min(sleep_seconds(pod), grace))
            await engine.stop(grace - (loop.time() - begun))
        await self._annotate(pod, {SERVED: "ended", DELETE_AFTER: "0s"})

    async def _gone(self, uid: str) -> None:
        """Stop the engine of a pod that is gone or does not run; one that is ending goes on until its requests or its time have ended."""
        ending, engine = self._ending.pop(uid, None), self._engines.pop(uid, None)
        if ending:
            self._without_pod.add(ending)
            ending.add_done_callback(self._without_pod.discard)
        elif engine:
            await engine.stop(0)

    async def _annotate(self, pod: Document, annotations: Mapping[str, str]) -> None:
        while True:
            try:
                await self._watcher.patch(pod, {"metadata": {"annotations": annotations}})
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
    """Give how long a deleted pod goes on serving: until the first of its main containers gets SIGTERM."""
    hooks = [((each.get("lifecycle") or {}).get("preStop") or {}).get("sleep") or {} for each in pod["spec"]["containers"]]
    return min(int(hook.get("seconds", 0)) for hook in hooks)


def served_model(pod: Document) -> str:
    """Give the name under which a pod serves its model, as the arguments of its containers say it."""
    words = [word for each in pod["spec"]["containers"] for word in (*(each.get("command") or ()), *(each.get("args") or ()))]
    for flag in MODEL_FLAGS:
        for word, following in zip_longest(words, words[1:], fillvalue=""):
            if word.startswith(f"{flag}="):
                return str(word.removeprefix(f"{flag}="))
            if word == flag and following:
                return str(following)
    return MODEL


def _runs(pod: Document) -> bool:
    status = pod.get("status") or {}
    waiting = [each for each in status.get("containerStatuses") or () if "waiting" in (each.get("state") or {})]
    return status.get("phase") == "Running" and bool(status.get("podIP")) and not waiting


def _serves(pod: Document) -> bool:
    """Whether a container of the pod, a sidecar among them, says that it listens where engines do."""
    containers = [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())]
    return any(port["containerPort"] == PORT for each in containers for port in each.get("ports") or ())


def of_cluster(server: str, pki: str) -> ServedPods:
    """Give the engines of a cluster's pods."""
    return ServedPods(Watcher(server, Authority(Path(pki))))
