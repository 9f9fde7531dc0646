"""Data parallelism within a pod: every rank has a port of its own, which the pool, the sidecar and the containers must all know.

The ranks are started by the engine, from flags that the user writes. The first one listens where an engine without ranks does.
"""

import re

from activities.render.engines.flags import Flag
from activities.render.engines.spec import Engine, FlowControl
from activities.render.inputs.findings import Findings
from activities.render.inputs.reader import Reader
from activities.render.objects import contract
from activities.render.objects.manifest import Json
from api_types.limits import RANKS_MAX
from api_types.resources.parts.probes import FIRST_RANK_ONLY

PORT_MAX = 65535
# What the sidecar assumes by itself: clear of its own ports, of which it has one for every rank.
_DECODE_PORT = 8200
# A script that starts each rank by itself: `--port=$((8000 + rank))`.
_PORT_AND_RANK = re.compile(r"\$\(\(([0-9]{1,5})\+")


def read_ranks(engine: Reader) -> int:
    """Read `engines[].dataParallel`: the ranks of each serving pod."""
    return engine.object("dataParallel").integer("size", 1, 1, RANKS_MAX)


def read_flow_control(serving: Reader) -> FlowControl | None:
    """Read `serving.flowControl`; 0 is what is not limited."""
    if not serving.has("flowControl"):
        return None
    block = serving.object("flowControl")
    return FlowControl(block.integer("maxRequests", 0, 1, 1_000_000), block.integer("queueSeconds", 0, 1, 3600))


def check_ranks(engines: tuple[Engine, ...], findings: Findings) -> None:
    """Refuse engines with different numbers of ranks: the ports of a pool are the same for all of its pods. Say whom probes do not ask."""
    if len({engine.ranks for engine in engines}) > 1:
        shown = ", ".join(f"{engine.name}: {engine.ranks}" for engine in engines)
        findings.problem("spec", f"engines have different dataParallel.size ({shown}), yet share one pool: give all the same")
    for engine in engines:
        if engine.ranks > 1 and any(member.probes and member.probes.liveness for member in engine.members):
            findings.warn(f"engine {engine.name}, probes", FIRST_RANK_ONLY)


def decode_port(engine: Engine) -> int:
    """Give the port of a decode engine that names none."""
    return _DECODE_PORT if engine.ranks > 1 else contract.DECODE_PORT


def first_port(engine: Engine, flag: Flag) -> int | None:
    """Give the port of the first rank, which a script may compute; None for one that cannot be read here."""
    if flag.number is None and engine.ranks > 1 and flag.place == "shell text" and (found := _PORT_AND_RANK.match(flag.value)):
        return int(found[1])
    return flag.number


def is_taken(engine: Engine, port: int) -> bool:
    """Tell whether ports of a decode engine's ranks are those of the sidecar."""
    return abs(port - contract.ENGINE_PORT) < engine.ranks


def port_bounds(engine: Engine, port: int) -> str:
    """Name the bounds that the first rank's port is outside of; empty for a port with which every rank has one."""
    highest = PORT_MAX - engine.ranks + 1
    if 1 <= port <= highest:
        return ""
    return f"between 1 and {highest}" + (f", so that each of {engine.ranks} ranks has a port" if engine.ranks > 1 else "")


def container_ports(name: str, first: int, ranks: int) -> list[Json]:
    """Give the ports of a container, one for every rank."""
    return [{"name": f"{name}-{rank}" if rank else name, "containerPort": first + rank} for rank in range(ranks)]


def open_ports(engine: Engine, template: Json) -> Json:
    """Give a serving pod's template with the ports of all its ranks."""
    container = template["spec"]["containers"][0]
    if engine.ranks == 1 or "ports" not in container:
        return template
    (first,) = container["ports"]
    ported = {**container, "ports": container_ports(first["name"], first["containerPort"], engine.ranks)}
    return {**template, "spec": {**template["spec"], "containers": [ported, *template["spec"]["containers"][1:]]}}


def target_ports(engines: tuple[Engine, ...]) -> list[Json]:
    """Give the ports of a pool: each is an endpoint of its own to the picker."""
    return [{"number": contract.ENGINE_PORT + rank} for rank in range(engines[0].ranks)]
