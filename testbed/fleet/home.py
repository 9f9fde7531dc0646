"""The stored ports and address ranges of a testbed.

Ports are chosen once and stored, so that a kubeconfig written elsewhere stays valid. A
port that another program has taken meanwhile is replaced, with a message. Ports are
below the kernel's range for outgoing connections, because a port from that range may be
taken before its server has started. All testbeds of a user record their ports in one
place, because seconds pass between choosing a port and listening on it.
"""

import fcntl
import ipaddress
import random
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.documents import read_json, write_json
from testbed.programs.install import cache_folder

PORTS = range(20000, 32000)
PORTS_TRIED = 200
POD_NETWORK = ipaddress.IPv4Network("10.244.0.0/16")
POD_PREFIX = 21
SERVICE_NETWORK = ipaddress.IPv4Network("10.96.0.0/16")
GATEWAY_NETWORK = ipaddress.IPv4Network("10.245.0.0/16")


class HomeBusy(Exception):
    """Another command is changing this testbed."""


class Home:
    """The folder of one testbed, with its stored ports and address ranges."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser().resolve()
        self._file = self.folder / "state.json"
        self._ports: dict[str, int] = {}
        self._indices: dict[str, int] = {}
        self.recall()

    def recall(self) -> None:
        """Read the stored ports and ranges, which another command may have changed."""
        known = read_json(self._file) or {}
        self._ports = known.get("ports", {})
        self._indices = known.get("indices", {})

    @property
    def clusters(self) -> Path:
        """The parent of every cluster's folder."""
        return self.folder / "clusters"

    @property
    def logs(self) -> Path:
        """The folder of the logs, `<name>.log` for each process."""
        return self.folder / "logs"

    @property
    def manifests(self) -> Path:
        """The folder of the manifests that a user applies to the product."""
        return self.folder / "manifests"

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Lock the folder against every other command.

        Raise HomeBusy if one is running.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HomeBusy(
                    "another command is starting or stopping the testbed in "
                    f"{self.folder}; wait for it and try again"
                ) from None
            yield

    def choose_ports(self, names: list[str], say: Callable[[str], None]) -> None:
        """Choose a free port for each name, if possible its earlier one.

        Call this only while no process of this testbed runs.
        """
        with _claims() as claims:
            others = {
                int(port) for port, home in claims.items() if home != str(self.folder)
            }
            for name in names:
                before = self._ports.get(name)
                if before is not None and before not in others and is_free(before):
                    continue
                self._ports[name] = self._free_port(others)
                if before is not None:
                    say(
                        f"port {before} of {name} was taken by another program; "
                        f"the new port is {self._ports[name]}"
                    )
            for port in [
                port for port, home in claims.items() if home == str(self.folder)
            ]:
                del claims[port]
            claims |= {str(port): str(self.folder) for port in self._ports.values()}
            self._save()

    def port(self, name: str) -> int:
        """Return the port of `name`."""
        return self._ports[name]

    def number_clusters(self, names: list[str]) -> None:
        """Assign a number to each cluster, once.

        The addresses of a cluster must not change when another cluster is added.
        """
        for name in names:
            if name not in self._indices:
                taken = set(self._indices.values())
                self._indices[name] = next(
                    index for index in range(len(taken) + 1) if index not in taken
                )
        self._save()

    def pod_cidr(self, cluster: str) -> str:
        """Return the address range of a cluster's pods."""
        return self._part(POD_NETWORK, cluster)

    def service_cidr(self, cluster: str) -> str:
        """Return the address range of a cluster's Services.

        Clusters share the network of a data plane, so their ranges differ.
        """
        return self._part(SERVICE_NETWORK, cluster)

    def gateway_address(self, cluster: str) -> str:
        """Return the address that the Gateways of a cluster report."""
        return str(GATEWAY_NETWORK.network_address + self._index(cluster) * 256 + 1)

    def name_server(self, cluster: str) -> str:
        """Return the address at which a cluster's Services are resolved."""
        network = ipaddress.IPv4Network(self.service_cidr(cluster))
        return str(network.broadcast_address - 1)

    def _part(self, network: ipaddress.IPv4Network, cluster: str) -> str:
        size = 1 << (32 - POD_PREFIX)
        first = network.network_address + self._index(cluster) * size
        return f"{first}/{POD_PREFIX}"

    def _index(self, cluster: str) -> int:
        index = self._indices[cluster]
        if index >= (most := 1 << (POD_PREFIX - POD_NETWORK.prefixlen)):
            raise HomeBusy(
                f"{self.folder} has had more than {most} clusters and has no "
                "addresses left; use an empty folder"
            )
        return index

    def _free_port(self, others: set[int]) -> int:
        taken = others | set(self._ports.values())
        for port in random.sample(PORTS, len(PORTS)):
            if port not in taken and is_free(port):
                return port
        raise HomeBusy(
            f"no free port between {PORTS.start} and {PORTS.stop}; stop programs that listen there"
        )

    def _save(self) -> None:
        write_json(self._file, {"ports": self._ports, "indices": self._indices})


@contextmanager
def _claims() -> Iterator[dict[str, str]]:
    """Read and rewrite the ports of all homes, under a lock.

    Ports of deleted homes are dropped.
    """
    file = cache_folder() / "ports.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        claims = {
            port: home
            for port, home in (read_json(file) or {}).items()
            if Path(home).is_dir()
        }
        yield claims
        write_json(file, claims)


def free_ports() -> tuple[int, int]:
    """Return how many of some random ports of the testbed are free, and how many."""
    tried = random.sample(PORTS, PORTS_TRIED)
    return sum(map(is_free, tried)), PORTS_TRIED


def is_free(port: int) -> bool:
    """Return whether a server could listen on this loopback port."""
    with socket.socket() as probe:
        # Set the option that servers set, so that a closing connection does not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
