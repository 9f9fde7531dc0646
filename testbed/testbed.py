"""A fleet on one machine: start it, find it, stop it.

`up` may be called at any time. It finishes an interrupted run, keeps data, ports and
keys, and returns at once if everything runs. The supervisor owns every process. This
module decides which processes run. `cluster_start.py` starts one cluster. Each part is
described in its own module: `cluster/`, `dataplane/`, `temporal.py`.
"""

import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

from testbed import fake_clouds
from testbed import temporal as temporal_server
from testbed.cluster.control_plane import ClusterControlPlane
from testbed.cluster_start import (
    CONTROLLER_SECONDS,
    GATEWAY,
    SERVER_SECONDS,
    await_gateways,
    bring_up,
    gateway_process,
)
from testbed.dataplane.config import ENCLAVE
from testbed.dataplane.config import port_name as data_plane_port
from testbed.dataplane.config import processes as data_plane_processes
from testbed.documents import read_json, write_json
from testbed.fleet.fleet_file import CONTROL, FleetFile
from testbed.fleet.home import Home
from testbed.manifests import write_manifests
from testbed.node import envoy_stack
from testbed.node.envoy_stack import EnvoyStack
from testbed.process.processes import ProcessSpec
from testbed.process.supervision import Supervision
from testbed.programs.install import Installer, needed
from testbed.programs.versions import (
    DEFINITIONS,
    ENVOY_DEFINITIONS,
    ENVOY_TOOLS,
)
from testbed.readiness import (
    answers_http,
)
from testbed.running import ClusterRunning, Running
from testbed.temporal import TEMPORAL
from testbed.waiting import StartFailed, wait_until

STOP_SECONDS = 30
STAGE_LAST = 9
"""Processes that `start_process` started, such as a worker, are stopped first."""

FORMAT = 5
"""The version of running.json. A testbed of another version is restarted."""


class Testbed:
    """One testbed in the folder `home`. `say` receives progress, line by line."""

    __test__ = False  # pytest collects every class with this prefix

    def __init__(
        self, home: Path, fleet: FleetFile, say: Callable[[str], None] = print
    ) -> None:
        self._home = Home(home)
        self._fleet = fleet
        self._say = say
        self._supervision = Supervision(self._home.folder)
        self._files = self._supervision.files

    def up(
        self,
        temporal: bool = True,
        *,
        data_plane: bool = False,
        envoy: EnvoyStack | None = None,
    ) -> Running:
        """Start everything, with the existing data, and return its addresses.

        `data_plane` adds Traefik and simulated engines, so that a request to a Gateway
        arrives at a pod's address. `envoy` does too, and gives all clusters Envoy
        Gateway and Envoy in place of Traefik, and simulated clusters endpoint pickers. A
        running testbed that
        matches the request is not changed. Another fleet or a missing part causes a
        restart with the same data.

        Missing programs are installed first. Raise StartFailed or InstallFailed with
        the reason. The started processes keep running, so that they can be examined;
        another `up` continues from there.
        """
        data_plane = data_plane or envoy is not None
        with self._home.changing():
            if (running := self.running()) and self._matches(
                temporal=temporal, data_plane=data_plane, envoy=envoy is not None
            ):
                self._say(f"already up in {self._home.folder}")
                return running
            started = time.monotonic()
            installer = Installer(self._say)
            programs = installer.programs(needed(data_plane=data_plane))
            definitions = {
                each.name: installer.definitions(each.name) for each in DEFINITIONS
            }
            gateway_objects: list[dict[str, Any]] = []
            control_objects: list[dict[str, Any]] = []
            if envoy:
                programs |= installer.programs(ENVOY_TOOLS)
                definitions |= {
                    each.name: installer.definitions(each.name)
                    for each in ENVOY_DEFINITIONS
                }
                chart = installer.envoy_gateway_chart()
                gateway_objects = envoy_stack.documents(envoy, programs["helm"], chart)
                control_objects = envoy_stack.control_documents(
                    envoy.control, programs["helm"], chart
                )
            self._supervision.stop()
            planes = self._prepare(
                programs,
                temporal=temporal,
                data_plane=data_plane,
                envoy=envoy is not None,
            )
            self._record.unlink(missing_ok=True)
            self._supervision.start()
            self._supervision.want(
                spec for plane in planes for spec in plane.store_and_server()
            )
            if temporal:
                self._supervision.want(
                    [temporal_server.process(self._home, programs[TEMPORAL])]
                )
            if self._fleet.has_clouds:
                self._supervision.want(
                    [fake_clouds.process(self._home, self._handed_out(planes))]
                )
            with ThreadPoolExecutor(len(planes) + 2) as pool:
                # Temporal starts at the same time as the clusters, which compete with
                # it for CPU time.
                waits = [pool.submit(self._await_temporal)] if temporal else []
                waits += (
                    [pool.submit(self._await_clouds)] if self._fleet.has_clouds else []
                )
                waits += [
                    pool.submit(
                        self._bring_up,
                        plane,
                        definitions,
                        gateway_objects if plane.simulated else control_objects,
                        data_plane=data_plane,
                    )
                    for plane in planes
                ]
                for wait in waits:
                    wait.result()
            self._supervision.want(
                [gateway_process(planes, self._home, STAGE_LAST - 1)]
            )
            if data_plane:
                self._supervision.want(
                    data_plane_processes(planes, programs["traefik"], STAGE_LAST - 1)
                )
            await_gateways(
                planes, ENCLAVE if data_plane else GATEWAY, self._supervision
            )
            clouds = self._fleet.has_clouds
            running = self._describe(
                planes, temporal=temporal, data_plane=data_plane, clouds=clouds
            )
            for cluster in running.all_clusters():
                # An address in the status may be from an earlier run. Only a response
                # of the gateway proves it.
                if cluster.gateway_url:
                    answers = partial(answers_http, cluster.gateway_url)
                    self._supervision.wait_for(
                        ENCLAVE,
                        answers,
                        CONTROLLER_SECONDS,
                        f"does not answer for the Gateway of {cluster.name}",
                    )
            credentials = fake_clouds.credentials(self._home) if clouds else {}
            write_manifests(
                running.manifests,
                self._fleet,
                {plane.name: plane.kubeconfig for plane in planes},
                credentials,
            )
            record = {
                "format": FORMAT,
                "clusters": [plane.name for plane in planes],
                "processes": sorted(self._files.specs()),
                "temporal": temporal,
                "data_plane": data_plane,
                "envoy": envoy is not None,
                "clouds": clouds,
                "fleet": self._fleet.model_dump_json(),
            }
            write_json(self._record, record)
            self._say(
                f"up in {time.monotonic() - started:.1f} s: "
                f"{', '.join(running.clusters)} in {self._home.folder}"
            )
            return running

    def down(self, wipe: bool = False) -> None:
        """Stop everything that belongs to this testbed.

        `wipe` also deletes its data, keys and logs.
        """
        with self._home.changing():
            self._supervision.stop()
        if wipe:
            rmtree(self._home.folder, ignore_errors=True)
        self._say(f"down{' and wiped' if wipe else ''}: {self._home.folder}")

    def running(self) -> Running | None:
        """Return the running testbed, or None unless all of its processes are alive.

        Processes of `start_process` do not count.
        """
        self._home.recall()
        record = read_json(self._record)
        if (
            record is None
            or record.get("format") != FORMAT
            or not self._supervision.alive()
        ):
            return None
        if not all(self._files.identity(name) for name in record["processes"]):
            return None
        planes = [self._plane(name, {}) for name in record["clusters"]]
        return self._describe(
            planes,
            temporal=record["temporal"],
            data_plane=record["data_plane"],
            clouds=record["clouds"],
        )

    def start_process(self, name: str, argv: list[str], env: dict[str, str]) -> None:
        """Supervise one more process.

        `env` overrides the supervisor's environment. The process logs to
        logs/<name>.log. It is restarted when it ends, until `stop_process` or the end
        of the testbed. Raise StartFailed if nothing is up, or if the name is taken.
        """
        if not self._supervision.alive():
            raise StartFailed(
                f"{name}: the testbed in {self._home.folder} is not up; start it first"
            )
        if name in self._files.specs():
            raise StartFailed(
                f"{name}: a process of that name is already supervised; stop it first"
            )
        self._supervision.want([ProcessSpec(name, argv, env, stage=STAGE_LAST)])
        self._supervision.wait_for(
            name,
            lambda: self.process_pid(name) is not None,
            CONTROLLER_SECONDS,
            "did not start",
        )

    def stop_process(self, name: str, signal: int = signal.SIGTERM) -> None:
        """Stop a supervised process for good.

        Send `signal`, and kill the process after a timeout. Do nothing if there is
        none.
        """
        spec = self._files.specs().get(name)
        if spec is None or not self._supervision.alive():
            return
        self._supervision.want(
            [
                ProcessSpec(
                    name,
                    spec.argv,
                    spec.environment,
                    spec.stage,
                    stop_signal=int(signal),
                )
            ]
        )
        wait_until(
            lambda: name not in self._files.specs(),
            STOP_SECONDS,
            lambda: self._supervision.failure_of(name, "did not end"),
        )

    def process_pid(self, name: str) -> int | None:
        """Return the pid of a supervised process that is alive, or None."""
        identity = self._files.identity(name)
        return identity.pid if identity else None

    def processes(self) -> dict[str, int | None]:
        """Return the pid of each supervised process, or None while it does not run."""
        return {name: self.process_pid(name) for name in self._files.specs()}

    @property
    def _record(self) -> Path:
        return self._home.folder / "running.json"

    def _matches(self, *, temporal: bool, data_plane: bool, envoy: bool) -> bool:
        record = read_json(self._record)
        matches = (
            record["fleet"] == self._fleet.model_dump_json()
            and record["temporal"] in (temporal, True)
            and record["data_plane"] in (data_plane, True)
            and record["envoy"] == envoy
        )
        if not matches:
            self._say(
                "another fleet runs here, or a part of it is missing; "
                "starting it again with the same data"
            )
        return matches

    def _prepare(
        self,
        programs: dict[str, Path],
        *,
        temporal: bool,
        data_plane: bool,
        envoy: bool,
    ) -> list[ClusterControlPlane]:
        names = [
            *([CONTROL] if self._fleet.control else []),
            *(cluster.name for cluster in self._fleet.clusters),
        ]
        self._home.number_clusters(names)
        planes = [
            self._plane(name, programs, data_plane=data_plane, envoy=envoy)
            for name in names
        ]
        ports = [port for plane in planes for port in plane.ports()]
        ports += temporal_server.PORTS if temporal else ()
        ports += fake_clouds.PORTS if self._fleet.has_clouds else ()
        ports += [data_plane_port(plane.name) for plane in planes] if data_plane else []
        self._home.choose_ports(ports, self._say)
        clouds = {
            plane.name: fake_clouds.review_url(self._home, cloud)
            for cloud, plane in self._handed_out(planes)
        }
        planes = [
            replace(plane, token_review=clouds.get(plane.name, plane.token_review))
            for plane in planes
        ]
        for plane in planes:
            plane.write_files()
        return planes

    def _plane(
        self,
        name: str,
        programs: dict[str, Path],
        *,
        data_plane: bool = False,
        envoy: bool = False,
    ) -> ClusterControlPlane:
        cluster = next(
            (each for each in self._fleet.clusters if each.name == name), None
        )
        stack, review = (cluster.stack, cluster.token_review) if cluster else (True, "")
        simulated = name != CONTROL
        return ClusterControlPlane(
            name,
            self._home,
            programs,
            simulated=simulated,
            data_plane=data_plane,
            real_pods=envoy and stack,
            stack=stack,
            token_review=review,
        )

    def _handed_out(
        self, planes: list[ClusterControlPlane]
    ) -> list[tuple[str, ClusterControlPlane]]:
        """Return the clusters that fake clouds hand out, each with its cloud."""
        clouds = {
            cluster.name: cluster.cloud
            for cluster in self._fleet.clusters
            if cluster.cloud
        }
        return [(clouds[plane.name], plane) for plane in planes if plane.name in clouds]

    def _bring_up(
        self,
        plane: ClusterControlPlane,
        definitions: dict[str, Path],
        gateway_objects: list[dict[str, Any]],
        *,
        data_plane: bool,
    ) -> None:
        bring_up(
            plane,
            self._fleet,
            self._supervision,
            definitions,
            gateway_objects,
            data_plane=data_plane,
        )
        self._say(f"{plane.name}: ready at {plane.server}")

    def _await_temporal(self) -> None:
        temporal_server.wait_until_ready(self._home, self._supervision, SERVER_SECONDS)
        self._say(
            f"temporal: ready at {temporal_server.address(self._home)}, UI at "
            f"{temporal_server.ui_address(self._home)}"
        )

    def _await_clouds(self) -> None:
        fake_clouds.wait_until_ready(self._home, self._supervision, SERVER_SECONDS)
        self._say("clouds: the fakes of Google Cloud and AWS are ready")

    def _describe(
        self,
        planes: list[ClusterControlPlane],
        *,
        temporal: bool,
        data_plane: bool,
        clouds: bool,
    ) -> Running:
        def cluster(plane: ClusterControlPlane) -> ClusterRunning:
            url = (
                f"http://127.0.0.1:{self._home.port(data_plane_port(plane.name))}"
                if data_plane
                else ""
            )
            return ClusterRunning(
                plane.name,
                plane.kubeconfig,
                plane.server,
                self._home.gateway_address(plane.name),
                url,
            )

        described = {plane.name: cluster(plane) for plane in planes}
        control = described.pop(CONTROL, None)
        return Running(
            home=self._home.folder,
            temporal_address=temporal_server.address(self._home) if temporal else "",
            temporal_ui=temporal_server.ui_address(self._home) if temporal else "",
            clusters=described,
            control=control,
            manifests=self._home.manifests,
            clouds=fake_clouds.addresses(self._home) if clouds else None,
        )
