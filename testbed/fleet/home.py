"""What a testbed remembers between runs: which ports and address ranges it chose.

Ports are chosen once and kept, so that a kubeconfig written to another place goes on working. A remembered port that another program
took meanwhile is chosen anew, with a message. They come from below the range from which the kernel hands out outgoing connections: a
port from that range may be taken again before its server has started. Testbeds of one user record their ports in one place, for between
choosing a port and listening on it lie seconds in which another testbed would find it free.
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
POD_NETWORK = ipaddress.IPv4Network("10.244.0.0/16")
POD_PREFIX = 21
GATEWAY_NETWORK = ipaddress.IPv4Network("10.245.0.0/16")


class HomeBusy(Exception):
    """Another command is changing this testbed."""


class Home:
    """The folder of one testbed, and what it remembers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser().resolve()
        self._file = self.folder / "state.json"
        self._ports: dict[str, int] = {}
        self._indices: dict[str, int] = {}
        self.recall()

    def recall(self) -> None:
        """Read again what is remembered: another command may have changed it."""
        known = read_json(self._file) or {}
        self._ports = known.get("ports", {})
        self._indices = known.get("indices", {})

    @property
    def clusters(self) -> Path:
        """Parent of every cluster's folder."""
        return self.folder / "clusters"

    @property
    def logs(self) -> Path:
        """Where every process writes its log, `<name>.log`."""
        return self.folder / "logs"

    @property
    def manifests(self) -> Path:
        """What a user applies to the product."""
        return self.folder / "manifests"

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Keep every other command off this folder. Raises HomeBusy when one is at work."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HomeBusy(f"another command is starting or stopping the testbed in {self.folder}; wait for it and try again") from None
            yield

    def choose_ports(self, names: list[str], say: Callable[[str], None]) -> None:
        """Give each name a free port: the one it had, if it is still free. Call only while nothing of this testbed runs."""
        with _claims() as claims:
            others = {int(port) for port, home in claims.items() if home != str(self.folder)}
            for name in names:
                before = self._ports.get(name)
                if before is not None and before not in others and is_free(before):
                    continue
                self._ports[name] = self._free_port(others)
                if before is not None:
                    say(f"port {before} of {name} was taken by another program; it is {self._ports[name]} from now on")
            for port in [port for port, home in claims.items() if home == str(self.folder)]:
                del claims[port]
            claims |= {str(port): str(self.folder) for port in self._ports.values()}
            self._save()

    def port(self, name: str) -> int:
        """Answer the port chosen for `name`."""
        return self._ports[name]

    def number_clusters(self, names: list[str]) -> None:
        """Give each cluster a number, once: its addresses must not move when another is added to the fleet."""
        for name in names:
            if name not in self._indices:
                taken = set(self._indices.values())
                self._indices[name] = next(index for index in range(len(taken) + 1) if index not in taken)
        self._save()

    def pod_cidr(self, cluster: str) -> str:
        """Where the pods of a cluster get their addresses."""
        size = 1 << (32 - POD_PREFIX)
        first = POD_NETWORK.network_address + self._index(cluster) * size
        return f"{first}/{POD_PREFIX}"

    def gateway_address(self, cluster: str) -> str:
        """Where the Gateways of a cluster say they listen."""
        return str(GATEWAY_NETWORK.network_address + self._index(cluster) * 256 + 1)

    def _index(self, cluster: str) -> int:
        index = self._indices[cluster]
        if index >= (most := 1 << (POD_PREFIX - POD_NETWORK.prefixlen)):
            raise HomeBusy(f"{self.folder} has had more than {most} clusters and has no addresses left; start one with an empty folder")
        return index

    def _free_port(self, others: set[int]) -> int:
        taken = others | set(self._ports.values())
        for port in random.sample(PORTS, len(PORTS)):
            if port not in taken and is_free(port):
                return port
        raise HomeBusy(f"no free port between {PORTS.start} and {PORTS.stop}; stop programs that listen there")

    def _save(self) -> None:
        write_json(self._file, {"ports": self._ports, "indices": self._indices})


@contextmanager
def _claims() -> Iterator[dict[str, str]]:
    """Read, and write again, which home has chosen which port, while no other testbed does. Homes that are gone have none."""
    file = cache_folder() / "ports.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        claims = {port: home for port, home in (read_json(file) or {}).items() if Path(home).is_dir()}
        yield claims
        write_json(file, claims)


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        # As servers do, so that a connection still winding down from the last run does not count as taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
