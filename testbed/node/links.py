"""Network namespaces of pods, each joined to the data plane by a pair of devices.

A pod's address is routed to its device. Addresses of simulated pods are local to the
data plane, so the route is in the table of local routes, where it takes precedence.
"""

import asyncio
import contextlib
import ctypes
import signal
from pathlib import Path

# The address of the data plane at each pair of devices.
_NEIGHBOUR = "169.254.1.1"
_PR_SET_PDEATHSIG = 1


class LinkFailed(Exception):
    """A network namespace could not be set up."""


class PodNetwork:
    """The network namespace of one pod. A process that only waits keeps it alive."""

    def __init__(self, holder: asyncio.subprocess.Process, device: str) -> None:
        self._holder = holder
        self._device = device

    @classmethod
    async def create(cls, address: str, number: int) -> "PodNetwork":
        """Create a namespace with the address. `number` is unique in the data plane."""
        holder = await asyncio.create_subprocess_exec(
            *("unshare", "--net", "--", "sh", "-c", "echo made; exec sleep infinity"),
            stdout=asyncio.subprocess.PIPE,
            preexec_fn=end_with_parent,
        )
        network = cls(holder, f"pod{number}")
        try:
            await network._join(address)
        except BaseException:  # also when the pod is gone already
            holder.kill()
            raise
        return network

    async def _join(self, address: str) -> None:
        made = self._holder.stdout and await self._holder.stdout.readline()
        if not made:
            raise LinkFailed(f"the pod at {address} got no network namespace")
        await _run(
            f"ip link add {self._device} type veth peer name eth0 "
            f"netns {self._holder.pid}",
            f"ip address add {_NEIGHBOUR}/32 dev {self._device}",
            f"ip link set {self._device} up",
            f"ip route replace {address}/32 dev {self._device} table local",
        )
        inside = " ".join(self.enter())
        await _run(
            f"{inside} ip link set lo up",
            f"{inside} ip address add {address}/32 dev eth0",
            f"{inside} ip link set eth0 up",
            f"{inside} ip route add {_NEIGHBOUR} dev eth0 scope link",
            f"{inside} ip route add default via {_NEIGHBOUR} src {address}",
        )

    def enter(self) -> list[str]:
        """Return the command that runs another command in the namespace."""
        return ["nsenter", f"--net=/proc/{self._holder.pid}/ns/net", "--"]

    async def delete(self) -> None:
        """Delete the namespace, with its devices and routes."""
        if self._holder.returncode is None:
            self._holder.kill()
        await self._holder.wait()
        # The kernel deletes the devices of a dead namespace too, but with a delay.
        with contextlib.suppress(LinkFailed):
            await _run(f"ip link delete {self._device}")


def forward() -> None:
    """Forward packets between the namespaces of pods."""
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


async def _run(*commands: str) -> None:
    script = " && ".join(commands)
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", script, stderr=asyncio.subprocess.PIPE
    )
    _, error = await process.communicate()
    if process.returncode != 0:
        raise LinkFailed(f"{script}: {error.decode().strip()}")
