"""The pods that run real programs, and what a kubelet does for them.

A pod gets a network namespace with its address. Each of its containers is a process
with the arguments, variables and volumes of its spec, and is started again when it
ends. Readiness probes set the pod's condition Ready, and failed liveness probes restart
a container. At the end a pod runs its preStop hooks, gets SIGTERM, and is killed after
its grace period. kwok schedules, numbers and deletes the pods.

Images exist only as a table of programs (`images.py`). Init containers, security
contexts, resources and users of containers have no effect.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree
from typing import Any

import httpx

from testbed.cluster.kube import KubeClient, KubeError, collection, follow
from testbed.dataplane.pods import DELETE_AFTER, SERVED
from testbed.documents import write_json
from testbed.node import probes
from testbed.node.images import EXITED, PICKER, is_real, program_of
from testbed.node.links import PodNetwork, end_with_parent
from testbed.node.picker_config import for_older_picker
from testbed.node.pod_inputs import SourceMissing, environment_of, expanded, mounts_of

RETRY_SECONDS = 0.5
RESTART_SECONDS_MIN, RESTART_SECONDS_MAX = 0.5, 10.0
STEADY_SECONDS = 20.0

Document = dict[str, Any]
_numbers = itertools.count()


class NodeFiles:
    """The folders and names that all pods of one cluster share."""

    def __init__(
        self,
        folder: Path,
        logs: Path,
        cluster: str,
        programs: Mapping[str, str],
        name_server: str,
    ) -> None:
        self.folder = folder
        self.logs = logs
        self.cluster = cluster
        self.programs = programs
        self.name_server = name_server

    def resolver(self, namespace: str) -> str:
        """Return the resolv.conf of a namespace."""
        domain = "svc.cluster.local"
        return (
            f"nameserver {self.name_server}\n"
            f"search {namespace}.{domain} {domain} cluster.local\noptions ndots:5\n"
        )


class Container:
    """One container. `run` keeps its process running."""

    def __init__(
        self,
        pod: Document,
        spec: Document,
        network: PodNetwork,
        files: NodeFiles,
        kube: KubeClient,
    ) -> None:
        self.spec = spec
        self.ready = False
        self._pod, self._network = pod, network
        self._files, self._kube = files, kube
        self._process: asyncio.subprocess.Process | None = None
        self._started = 0.0
        self._stopping = False
        metadata = pod["metadata"]
        self._folder = files.folder / metadata["uid"]
        self._name = f"{files.cluster}.{metadata['name']}.{spec['name']}"

    @property
    def _once(self) -> bool:
        return bool(self._pod["spec"].get("restartPolicy") == "Never")

    async def run(self) -> int:
        """Run until cancelled. Without restarts, return the exit code."""
        pause = RESTART_SECONDS_MIN
        while True:
            code = await self._run_once()
            if self._stopping or self._once:
                return code
            if time.monotonic() - self._started > STEADY_SECONDS:
                pause = RESTART_SECONDS_MIN
            await asyncio.sleep(pause)
            pause = min(pause * 2, RESTART_SECONDS_MAX)

    async def probe(self) -> None:
        """Follow the readiness and liveness probes until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_readiness())
            if "livenessProbe" in self.spec:
                tasks.create_task(self._follow_liveness(self.spec["livenessProbe"]))

    async def stop(self, grace: float) -> None:
        """End the process, after its preStop hook, within the grace period."""
        begun = time.monotonic()
        await self._before_stop(grace)
        self._stopping = True
        self._signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, grace - (time.monotonic() - begun))):
                await self._ended()
        self._signal(signal.SIGKILL)
        await self._ended()

    def _signal(self, number: int) -> None:
        if self._process and self._process.returncode is None:
            self._process.send_signal(number)

    async def _ended(self) -> None:
        if self._process:
            await self._process.wait()

    async def _before_stop(self, seconds: float) -> None:
        hook = (self.spec.get("lifecycle") or {}).get("preStop") or {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if "sleep" in hook:
                    await asyncio.sleep(hook["sleep"]["seconds"])
                elif "httpGet" in hook:
                    await probes.http_get(
                        hook["httpGet"], self._address, self._ports, seconds
                    )
                elif "exec" in hook:
                    process = await self._start(hook["exec"]["command"])
                    await process.wait()

    @property
    def _address(self) -> str:
        return str(self._pod["status"]["podIP"])

    @property
    def _ports(self) -> dict[str, int]:
        return {
            port["name"]: port["containerPort"]
            for port in self.spec.get("ports") or ()
            if "name" in port
        }

    async def _run_once(self) -> int:
        command = self.spec.get("command") or [program_of(self.spec["image"])]
        self._process = await self._start([*command, *(self.spec.get("args") or ())])
        self._started = time.monotonic()
        try:
            return await self._process.wait()
        finally:
            self.ready = False

    async def _start(self, words: list[str]) -> asyncio.subprocess.Process:
        environment = await environment_of(self._kube, self._pod, self.spec)
        environment |= {
            # A name of the API server's certificate. Its Service has the usual port.
            "KUBERNETES_SERVICE_HOST": "kubernetes.default.svc",
            "KUBERNETES_SERVICE_PORT": "443",
            "HOSTNAME": self._pod["metadata"]["name"],
        }
        while True:
            try:
                mounts = await mounts_of(
                    self._kube, self._pod, self.spec, self._folder / "volumes"
                )
                break
            except (SourceMissing, KubeError, httpx.TransportError) as error:
                print(f"{self._name}: waits for {error}", flush=True)
                await asyncio.sleep(RETRY_SECONDS)
        if program_of(self.spec["image"]) == PICKER:
            _adapt_configuration(mounts)
        config = self._folder / f"{self.spec['name']}-{next(_numbers)}.json"
        write_json(
            config,
            {
                "root": str(self._folder / "roots" / config.stem),
                "programs": self._files.programs,
                "files": {
                    "/etc/resolv.conf": self._files.resolver(
                        self._pod["metadata"]["namespace"]
                    ),
                    "/etc/hosts": "127.0.0.1 localhost\n",
                    "/etc/nsswitch.conf": "hosts: files dns\n",
                    "/etc/passwd": "root:x:0:0:root:/tmp:/bin/sh\n",
                },
                "mounts": mounts,
                "argv": [expanded(word, environment) for word in words],
                "environment": environment,
            },
        )
        log = os.open(
            self._files.logs / f"{self._name}.log",
            os.O_WRONLY | os.O_CREAT | os.O_APPEND,
            0o600,
        )
        try:
            return await asyncio.create_subprocess_exec(
                *self._network.enter(),
                *("unshare", "--mount", "--"),
                *(sys.executable, "-m", "testbed.node.sandbox", str(config)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        finally:
            os.close(log)

    async def _follow_readiness(self) -> None:
        probe = self.spec.get("readinessProbe")
        wins = losses = 0
        while True:
            runs = self._process is not None and self._process.returncode is None
            if probe is None:
                self.ready = runs
                await asyncio.sleep(RETRY_SECONDS)
                continue
            good = runs and await probes.succeeds(probe, self._address, self._ports)
            wins, losses = (wins + 1, 0) if good else (0, losses + 1)
            if wins >= probe.get("successThreshold", 1):
                self.ready = True
            elif losses >= probe.get("failureThreshold", 3) or not runs:
                self.ready = False
            # A kubelet probes an unready container more often.
            period = probe.get("periodSeconds", 10)
            await asyncio.sleep(period if self.ready else min(period, 1))

    async def _follow_liveness(self, probe: Document) -> None:
        losses = 0
        while True:
            await asyncio.sleep(probe.get("periodSeconds", 10))
            early = time.monotonic() - self._started < max(
                probe.get("initialDelaySeconds", 0), STEADY_SECONDS
            )
            if early or await probes.succeeds(probe, self._address, self._ports):
                losses = 0
                continue
            losses += 1
            if losses >= probe.get("failureThreshold", 3):
                losses = 0
                self._signal(signal.SIGKILL)


class RealPod:
    """One pod: its network and its containers."""

    def __init__(self, pod: Document, files: NodeFiles, kube: KubeClient) -> None:
        self._pod, self._files, self._kube = pod, files, kube
        self._containers: list[Container] = []
        self._network: PodNetwork | None = None
        self._told: list[bool] | None = None
        self._running = asyncio.create_task(self._run())
        self._running.add_done_callback(_report)
        self._ending: asyncio.Task[None] | None = None

    def end(self, pod: Document) -> None:
        """Begin the end of a deleted pod, once."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(pod))

    def cancel(self) -> None:
        """Stop to watch the containers. They end with this process."""
        self._running.cancel()

    async def gone(self) -> None:
        """End at once: the pod is gone, and another pod may get its address."""
        if self._ending:
            self._ending.cancel()
            await asyncio.gather(self._ending, return_exceptions=True)
        await self._stop(0)
        if self._network:
            await self._network.delete()
        rmtree(self._files.folder / self._pod["metadata"]["uid"], ignore_errors=True)

    async def _run(self) -> None:
        job = any(
            owner["kind"] == "Job"
            for owner in self._pod["metadata"].get("ownerReferences") or ()
        )
        await self._annotate({SERVED: "true"})
        self._network = await PodNetwork.create(
            self._pod["status"]["podIP"], next(_numbers)
        )
        self._containers = [
            Container(self._pod, spec, self._network, self._files, self._kube)
            for spec in self._pod["spec"]["containers"]
        ]
        async with asyncio.TaskGroup() as tasks:
            runs = [tasks.create_task(each.run()) for each in self._containers]
            if job:
                codes = await asyncio.gather(*runs)
                if not any(codes):
                    await self._annotate({EXITED: "true"})
                return
            for each in self._containers:
                tasks.create_task(each.probe())
            tasks.create_task(self._tell_readiness())

    async def _tell_readiness(self) -> None:
        while True:
            states = [each.ready for each in self._containers]
            if states != self._told:
                await self._patch(_readiness(self._pod, states), "/status")
                self._told = states
            await asyncio.sleep(RETRY_SECONDS)

    async def _end(self, pod: Document) -> None:
        grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        await self._stop(grace)
        await self._annotate({SERVED: "ended", DELETE_AFTER: "0s"})

    async def _stop(self, grace: float) -> None:
        await asyncio.gather(*(each.stop(grace) for each in self._containers))
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    async def _annotate(self, annotations: Mapping[str, str]) -> None:
        await self._patch({"metadata": {"annotations": annotations}})

    async def _patch(self, change: Document, subresource: str = "") -> None:
        while True:
            try:
                await self._kube.patch(self._pod, change, subresource, strategic=True)
            except KubeError as error:
                if error.code == httpx.codes.NOT_FOUND:
                    return
                print(f"{type(error).__name__} {error}", flush=True)
            except httpx.TransportError as error:
                print(f"{type(error).__name__} {error}", flush=True)
            else:
                return
            await asyncio.sleep(RETRY_SECONDS)


class RealPods:
    """The real pods of one cluster."""

    def __init__(self, kube: KubeClient, files: NodeFiles) -> None:
        self._kube, self._files = kube, files
        self._pods: dict[str, RealPod] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Run until cancelled."""
        rmtree(self._files.folder, ignore_errors=True)
        try:
            await follow(self._kube, collection("v1", "Pod"), self.received)
        finally:
            for pod in self._pods.values():
                pod.cancel()

    async def received(self, kind: str, pods: list[Document]) -> None:
        """Handle an item of `KubeClient.changes`."""
        if kind == "LISTED":
            here = {pod["metadata"]["uid"] for pod in pods}
            for uid in self._pods.keys() - here:
                self._forget(uid)
        for pod in pods:
            uid = pod["metadata"]["uid"]
            status = pod.get("status") or {}
            if kind == "DELETED" or status.get("phase") in ("Succeeded", "Failed"):
                self._forget(uid)
            elif uid in self._pods:
                if "deletionTimestamp" in pod["metadata"]:
                    self._pods[uid].end(pod)
            elif (
                status.get("phase") == "Running"
                and status.get("podIP")
                and is_real(pod)
                and "deletionTimestamp" not in pod["metadata"]
            ):
                self._pods[uid] = RealPod(pod, self._files, self._kube)

    def _forget(self, uid: str) -> None:
        if pod := self._pods.pop(uid, None):
            leaving = asyncio.create_task(pod.gone())
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)


def _report(task: asyncio.Task[None]) -> None:
    """Print the error of a pod, which then stays as it is."""
    if not task.cancelled() and (error := task.exception()):
        print("".join(traceback.format_exception(error)), flush=True)


def _readiness(pod: Document, states: list[bool]) -> Document:
    ready = "True" if all(states) else "False"
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        "status": {
            "conditions": [
                {"type": kind, "status": ready, "lastTransitionTime": now}
                for kind in ("ContainersReady", "Ready")
            ],
            "containerStatuses": [
                {"name": spec["name"], "ready": state}
                for spec, state in zip(pod["spec"]["containers"], states, strict=True)
            ],
        }
    }


def _adapt_configuration(mounts: Mapping[str, str]) -> None:
    for folder in mounts.values():
        for file in Path(folder).rglob("*.yaml"):
            file.write_text(for_older_picker(file.read_text()))
