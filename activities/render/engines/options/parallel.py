"""Data parallelism within a pod: every rank has its own port.

The pool, the sidecar and the containers must all know these ports. The engine starts
the ranks, from flags that the user writes. The first rank listens on the port of an
engine without ranks.
"""

import re
from typing import get_args

from activities.render.engines.spec import EngineSpec, FlowControlSpec
from activities.render.inputs.findings import Findings
from activities.render.inputs.reader import Reader
from activities.render.objects import contract
from activities.render.objects.manifest import Json
from api_types.engines.flags import Flag
from api_types.limits import PORT_MAX, RANKS_MAX
from api_types.resources.parts.parallel import DataParallel, LoadBalancing
from api_types.resources.parts.probes import FIRST_RANK_ONLY
from api_types.validation.serving import port_problem

# The default of the sidecar. It does not overlap the sidecar's own ports, one for every
# rank.
_DECODE_PORT = 8200
# A script that starts each rank itself: `--port=$((8000 + rank))`.
_PORT_AND_RANK = re.compile(r"\$\(\(([0-9]{1,5})\+")


def read_parallel(engine: Reader) -> DataParallel:
    """Read `engines[].dataParallel`. Without it, each serving pod has one rank."""
    block = engine.object("dataParallel")
    size = block.integer("size", 1, 1, RANKS_MAX)
    shape = block.choice("loadBalancing", "", get_args(LoadBalancing))
    found: LoadBalancing | None = next(
        (each for each in get_args(LoadBalancing) if each == shape), None
    )
    return DataParallel.model_construct(size=size, load_balancing=found)


def read_flow_control(serving: Reader) -> FlowControlSpec | None:
    """Read `serving.flowControl`. 0 means no limit."""
    if not serving.has("flowControl"):
        return None
    block = serving.object("flowControl")
    return FlowControlSpec(
        block.integer("maxRequests", 0, 1, 1_000_000),
        block.integer("queueSeconds", 0, 1, 3600),
    )


def check_ranks(engines: tuple[EngineSpec, ...], findings: Findings) -> None:
    """Report engines with different numbers of ranks.

    All pods of a pool have the same ports. Also warn that probes check only the first
    rank.
    """
    if len({engine.ranks for engine in engines}) > 1:
        shown = ", ".join(f"{engine.name}: {engine.ranks}" for engine in engines)
        findings.problem(
            "spec",
            f"engines have different dataParallel.size ({shown}), yet share one pool: "
            "set the same size and loadBalancing for all",
        )
    ports = [(e.name, e.phase, e.profile.port, e.ranks) for e in engines]
    if text := port_problem(ports):
        findings.problem("spec", text)
    for engine in engines:
        if engine.ranks > 1 and any(
            member.probes and member.probes.liveness for member in engine.members
        ):
            findings.warn(f"engine {engine.name}, probes", FIRST_RANK_ONLY)


def has_ranks(engines: tuple[EngineSpec, ...]) -> bool:
    """Return whether any engine runs more than one rank in a pod."""
    return any(engine.ranks > 1 for engine in engines)


def decode_port(engine: EngineSpec) -> int:
    """Return the default port of a decode engine."""
    if engine.profile.port != contract.ENGINE_PORT:
        return engine.profile.port
    return _DECODE_PORT if engine.ranks > 1 else contract.DECODE_PORT


def first_port(engine: EngineSpec, flag: Flag) -> int | None:
    """Return the port of the first rank, which a script may compute.

    Returns None if the port cannot be determined.
    """
    if (
        flag.number is None
        and engine.ranks > 1
        and flag.place == "shell text"
        and (found := _PORT_AND_RANK.match(flag.value))
    ):
        return int(found[1])
    return flag.number


def is_taken(engine: EngineSpec, port: int) -> bool:
    """Return whether a decode engine's ports overlap the sidecar's."""
    return abs(port - contract.ENGINE_PORT) < engine.ranks


def port_bounds(engine: EngineSpec, port: int) -> str:
    """Return the allowed range of the first rank's port if `port` is outside it, or ""."""
    highest = PORT_MAX - engine.ranks + 1
    if 1 <= port <= highest:
        return ""
    bounds = f"between 1 and {highest}"
    if engine.ranks > 1:
        bounds += f", so that each of {engine.ranks} ranks has a port"
    return bounds


def container_ports(name: str, first: int, ranks: int) -> list[Json]:
    """Return the ports of a container, one for every rank."""
    return [
        {"name": f"{name}-{rank}" if rank else name, "containerPort": first + rank}
        for rank in range(ranks)
    ]


def open_ports(engine: EngineSpec, template: Json) -> Json:
    """Add the ports of all ranks to a serving pod's template."""
    container = template["spec"]["containers"][0]
    if engine.ranks == 1 or "ports" not in container:
        return template
    first, *others = container["ports"]
    ranks = container_ports(first["name"], first["containerPort"], engine.ranks)
    ported = {**container, "ports": [*ranks, *others]}
    return {
        **template,
        "spec": {
            **template["spec"],
            "containers": [ported, *template["spec"]["containers"][1:]],
        },
    }


def target_ports(engines: tuple[EngineSpec, ...]) -> list[Json]:
    """Return the ports of a pool. The picker treats each as a separate endpoint."""
    first = request_port(engines)
    return [{"number": first + rank} for rank in range(engines[0].ranks)]


def request_port(engines: tuple[EngineSpec, ...]) -> int:
    """Return the first port of the serving pods of a replica.

    With prefill and decode it is the port of the sidecar and of the prefill engine.
    """
    disaggregated = any(engine.phase for engine in engines)
    return contract.ENGINE_PORT if disaggregated else engines[0].profile.port
