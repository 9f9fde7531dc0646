"""Prefix cache awareness: which pods have cached the beginning of a prompt.

The picker estimates this from earlier requests, or reads events that the engines
publish. Users start the engines, so this module only checks for the required flags and
warns about missing ones.
"""

import json

from activities.render.engines.container.engine_type import SGLANG, VLLM, engine_type
from activities.render.engines.json_flags import read_json_object
from activities.render.engines.pods import member_path
from activities.render.engines.spec import (
    PREFILL_DECODE,
    EngineSpec,
    PreciseCache,
    ReplicaSpec,
)
from activities.render.inputs.findings import Findings
from activities.render.inputs.reader import Reader
from api_types.engines.flags import find_flag
from api_types.limits import EVENTS_PORT
from api_types.validation.serving import (
    events_port_problem,
    precise_problem,
    url_problem,
)

# The prefix of the topics that the picker reads.
TOPICS = "kv@"
_FLAG = "--kv-events-config"
_PRECISE = "Precise"
_WHERE = "serving, prefixCache"


def read_precise_cache(serving: Reader) -> PreciseCache | None:
    """Read `serving.prefixCache`. Returns None in mode Approximate."""
    block = serving.object("prefixCache")
    if block.choice("mode", "Approximate", ("Approximate", _PRECISE)) != _PRECISE:
        return None
    url = block.text("tokenizerUrl", required=True)
    if url and (problem := url_problem(url)):
        block.findings.problem(block.where, f"tokenizerUrl {problem}")
    return PreciseCache(
        block.text("modelName", required=True),
        url,
        block.integer("eventsPort", EVENTS_PORT, 1024, 65535),
    )


def check_precise_cache(spec: ReplicaSpec, findings: Findings) -> None:
    """Report unsupported settings, and flags that engines seem to lack."""
    wanted = spec.precise_cache
    if wanted is None:
        return
    ranks = max((engine.ranks for engine in spec.engines), default=1)
    if problem := precise_problem(
        disaggregated=spec.mode == PREFILL_DECODE, ranks=ranks
    ):
        findings.problem(_WHERE, problem)
    if problem := events_port_problem(wanted.port, ranks=ranks):
        findings.problem(_WHERE, f"eventsPort {problem}")
    for engine in spec.engines:
        # Another check rejects an engine without a serving member.
        if any(member.serves for member in engine.members):
            _check_engine(engine, wanted, findings)


def event_format(engine: EngineSpec) -> str:
    """Return the engine that defines the format of the events.

    Empty means vLLM, the default of the picker.
    """
    return SGLANG if engine_type(engine) == SGLANG else ""


def _check_engine(engine: EngineSpec, wanted: PreciseCache, findings: Findings) -> None:
    where, known = member_path(engine, engine.server), engine_type(engine)
    flag = find_flag(engine.server, _FLAG)
    if flag is None and known in (VLLM, SGLANG):
        example = {
            "publisher": "zmq",
            "endpoint": f"tcp://*:{wanted.port}",
            "topic": _topic(engine, wanted),
        }
        enabled = {"enable_kv_cache_events": True} if known == VLLM else {}
        shown = json.dumps(enabled | example, separators=(",", ":"))
        findings.warn(
            where,
            f"without {_FLAG} the endpoint picker never learns what is cached: "
            f"add {_FLAG} {shown} to args",
        )
    found = read_json_object(flag.value) if flag else None
    if not found:
        return
    if known == VLLM and found.get("enable_kv_cache_events") is not True:
        findings.warn(
            where,
            f"{_FLAG} has no enable_kv_cache_events: true, so no events are published: "
            "add it",
        )
    if found.get("publisher", "zmq") != "zmq":
        findings.warn(
            where,
            f"{_FLAG} publishes to {found['publisher']!r}: the endpoint picker reads 'zmq'",
        )
    endpoint = str(found.get("endpoint", f"tcp://*:{EVENTS_PORT}"))
    port = endpoint.rpartition(":")[2]
    if port.isdecimal() and port != str(wanted.port):
        findings.warn(
            where,
            f"{_FLAG} publishes on port {port}, but the endpoint picker reads "
            f"{wanted.port}: set eventsPort, or the endpoint",
        )
    topic = str(found.get("topic", ""))
    if not topic.startswith(TOPICS) or not topic.endswith(f"@{wanted.model}"):
        findings.warn(
            where,
            f"{_FLAG} has topic {topic!r}: the endpoint picker reads {_topic(engine, wanted)!r}",
        )


def _topic(engine: EngineSpec, wanted: PreciseCache) -> str:
    return f"{TOPICS}$(POD_IP):{engine.profile.port}@{wanted.model}"
