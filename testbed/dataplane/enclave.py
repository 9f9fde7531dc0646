"""The data plane inside its namespace: `python -m testbed.dataplane.enclave CONFIG`.

The addresses of pods and Gateways exist only in this namespace. Two local routes let an
engine listen at each pod address, and let the Traefik of each cluster listen at the
address of its Gateway. A request therefore passes the gateway, the route, the Service,
the endpoint and the pod. The namespace also has host names for the Gateways and for a
model provider outside the fleet (`names.py`), and an endpoint with chosen failures
(`faults.py`). API servers are reached through relays. If one Traefik ends, the whole
process ends, and the supervisor restarts it.

Clusters with an Envoy Gateway run its pods, and the pods of endpoint pickers, as real
programs (`testbed/node/`).

CONFIG is a JSON object {relays, traefiks: [{argv, environment, log}], clusters:
[{server, pki, kubelet}], nodes: [the arguments of `of_cluster` in testbed/node/node.py], hosts,
provider}.
"""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.dataplane.faults import Faults
from testbed.dataplane.names import PROVIDER_ADDRESS, PROVIDER_MODEL, provider_authority
from testbed.dataplane.pods import SimulatedEngine, serve_cluster
from testbed.dataplane.relay import relay
from testbed.documents import read_json
from testbed.fleet.home import GATEWAY_NETWORK, POD_NETWORK, SERVICE_NETWORK
from testbed.node import node
from testbed.node.links import forward

PR_SET_PDEATHSIG = 1


def main() -> int:
    """Set up the namespace and serve until SIGTERM.

    Return 1 if a part ended by itself.
    """
    # The kernel drops the parent-death signal on entry into a user namespace.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    config = read_json(Path(sys.argv[1]))
    for command in (
        ["ip", "link", "set", "lo", "up"],
        *(
            ["ip", "route", "add", "local", str(net), "dev", "lo"]
            for net in (POD_NETWORK, GATEWAY_NETWORK, SERVICE_NETWORK)
        ),
        # Nothing outside sees this mount: the process has its own mount namespace.
        ["mount", "--bind", config["hosts"], "/etc/hosts"],
    ):
        subprocess.run(command, check=True)
    forward()
    return asyncio.run(_serve(config))


async def _serve(config: Mapping[str, Any]) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    provider = provider_authority(Path(config["provider"])).pair("provider")
    engines = [
        SimulatedEngine(PROVIDER_ADDRESS, 80, PROVIDER_MODEL),
        SimulatedEngine(PROVIDER_ADDRESS, 443, PROVIDER_MODEL, provider),
    ]
    children = [await _start(each) for each in config["traefiks"]]
    parts: list[asyncio.Task[Any]] = [
        asyncio.create_task(child.wait()) for child in children
    ]
    parts.append(asyncio.create_task(relay(config["relays"])))
    parts.append(asyncio.create_task(Faults().serve(PROVIDER_ADDRESS)))
    parts += [
        asyncio.create_task(serve_cluster(**cluster)) for cluster in config["clusters"]
    ]
    parts += [asyncio.create_task(node.of_cluster(**each)) for each in config["nodes"]]
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([stopping, *parts], return_when=asyncio.FIRST_COMPLETED)
    failed = not stopping.done()
    for child in children:
        if child.returncode is None:
            child.terminate()
            await child.wait()
    for part in parts:
        part.cancel()
    await asyncio.gather(*(engine.stop(0) for engine in engines))
    for outcome in await asyncio.gather(*parts, return_exceptions=True):
        if isinstance(outcome, Exception):
            print(f"{type(outcome).__name__}: {outcome}", flush=True)
    return 1 if failed else 0


async def _start(traefik: Mapping[str, Any]) -> asyncio.subprocess.Process:
    log = os.open(traefik["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return await asyncio.create_subprocess_exec(
            *traefik["argv"],
            env=os.environ | traefik["environment"],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=_end_with_parent,
        )
    finally:
        os.close(log)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
