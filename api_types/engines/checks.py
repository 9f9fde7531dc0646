"""Mistakes in the command line and environment of an engine that keep it from serving.

A finding is certain if an explicit flag or variable keeps the pod from becoming Ready.
Admission rejects certain findings, and warns about the others: an image may change the
defaults of its engine.
"""

import re
from collections.abc import Iterator, Mapping
from math import prod

from api_types.engines import profiles
from api_types.engines.data_parallel import LOCAL, SIZE, data_parallel_findings
from api_types.engines.facts import (
    ARGS,
    COMMAND,
    ENV,
    EngineFacts,
    EngineFinding,
    is_known,
    is_official,
)
from api_types.engines.flags import Flag, find_flag
from api_types.engines.profiles import LISTENING

CACHE_PATH = "/mnt/models"

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1", "[::1]"})
_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "--tensor-parallel-size": ("-tp", "--tp", "--tp-size"),
    "--pipeline-parallel-size": ("-pp", "--pp", "--pp-size"),
    SIZE[0]: SIZE[1:],
    LOCAL[0]: LOCAL[1:],
    "--alias": ("-a",),
}
# Variables that have the effect of a flag.
_VARIABLES: Mapping[tuple[str, str], str] = {
    (profiles.TGI, "--num-shard"): "NUM_SHARD",
    (profiles.TGI, "--model-id"): "MODEL_ID",
    (profiles.TEI, "--model-id"): "MODEL_ID",
    (profiles.TEI, "--served-model-name"): "SERVED_MODEL_NAME",
    (profiles.LLAMA_CPP, "--alias"): "LLAMA_ARG_ALIAS",
    (profiles.INFINITY, "--served-model-name"): "INFINITY_SERVED_MODEL_NAME",
}
# Flags with which the ranks of a data-parallel group are in other processes or pods.
_ELSEWHERE = (
    "--data-parallel-rank",
    "--data-parallel-start-rank",
    "--data-parallel-address",
    "--data-parallel-external-lb",
    "--data-parallel-hybrid-lb",
    "-dpn",
    "-dpr",
    "-dpa",
    "-dpe",
    "-dph",
)
# Ranks of attention share the devices of the tensor-parallel ranks.
_SHARED_DEVICES = "--enable-dp-attention"
_TLS_FLAGS = ("--ssl-keyfile", "--ssl-key-file", "--ssl-certfile", "--ssl-cert-file")
_SOCKET_FLAG = "--uds"
_PORT_DIGITS_MAX = 5
_NODES_FLAG = "--nnodes"
_ON_CPU = re.compile(r"(^|[-_.:/])cpu([-_.:/]|$)")


def engine_findings(facts: EngineFacts) -> Iterator[EngineFinding]:
    """Yield the mistakes of an engine."""
    yield from _address(facts)
    yield from _parallelism(facts)
    yield from data_parallel_findings(facts)
    yield from _model(facts)
    yield from _features(facts)


def _address(facts: EngineFacts) -> Iterator[EngineFinding]:
    for name in (*_TLS_FLAGS, _SOCKET_FLAG):
        flag = find_flag(facts.server, name)
        if flag and is_known(facts):
            why = "serves HTTPS" if name != _SOCKET_FLAG else "listens on a socket file"
            yield EngineFinding(
                f"{flag.name}: the engine {why}, and probes and requests use HTTP on a "
                "port; remove the flag, the gateway serves HTTPS",
                _field(facts, flag),
                certain=True,
            )
    yield from _port(facts)
    yield from _host(facts)


def _port(facts: EngineFacts) -> Iterator[EngineFinding]:
    listening = LISTENING[facts.profile.name]
    given = _given_port(facts)
    if given is None:
        return
    port, where, field, certain = given
    wanted = facts.ports.start
    if facts.behind_sidecar:
        if port in facts.ports:
            yield EngineFinding(
                f"{where} is a port of the sidecar of a Decode engine, "
                f"{_shown(facts.ports)}; use another one, such as 8200",
                field,
                certain=certain,
            )
        return
    if port == wanted:
        return
    remedy = (
        f"add {listening.port_flags[0]}={wanted}"
        if listening.port_flags
        else f"set the variable {listening.port_variable or listening.address} to "
        f"{'0.0.0.0:' if listening.address else ''}{wanted}"
    )
    yield EngineFinding(
        f"{where}, and requests go to port {wanted}, so the pod never becomes Ready; "
        f"{remedy}, or set profile.port: {port}",
        field,
        certain=certain,
    )


def _given_port(facts: EngineFacts) -> tuple[int, str, str, bool] | None:
    """Return the port on which the engine listens, its origin, field and certainty."""
    profile, listening = facts.profile, LISTENING[facts.profile.name]
    flag = find_flag(facts.server, *listening.port_flags)
    if flag:
        if flag.number is None:
            return None
        certain = flag.place != "shell text" and is_known(facts)
        return flag.number, f"{flag.name} is {flag.value}", _field(facts, flag), certain
    name = listening.port_variable or listening.address
    if name in facts.server.variables:
        value = facts.server.variables[name] or ""
        text = value.rpartition(":")[2] if listening.address else value
        if not (text.isascii() and text.isdecimal() and len(text) <= _PORT_DIGITS_MAX):
            return None
        return int(text), f"{name} is {value}", ENV, is_known(facts)
    if profile.name == profiles.CUSTOM or facts.behind_sidecar:
        return None
    port = profile.listens_on
    if is_official(facts):
        port = listening.image_port or port
    return port, f"{profile.name} listens on port {port} by default", ARGS, False


def _host(facts: EngineFacts) -> Iterator[EngineFinding]:
    profile, listening = facts.profile, LISTENING[facts.profile.name]
    name = listening.host_variable or listening.address
    flag = find_flag(facts.server, *listening.host_flags)
    value, where, field = None, "", ARGS
    certain = is_known(facts)
    if flag:
        value, where, field = (
            flag.value,
            f"{flag.name} {flag.value}",
            _field(facts, flag),
        )
        certain = certain and flag.place != "shell text"
    elif name and name in facts.server.variables:
        value = (facts.server.variables[name] or "").removeprefix("http://")
        where, field = f"{name}={value}", ENV
        if listening.address:
            value = value.rpartition(":")[0] or value
    if value is not None:
        if value in _LOOPBACK:
            yield EngineFinding(
                f"{where}: nothing outside the pod reaches the loopback address, so the "
                "pod never becomes Ready; use 0.0.0.0",
                field,
                certain=certain,
            )
        return
    opened = is_official(facts) and listening.image_loopback is False
    if profile.loopback and not opened:
        remedy = (
            f"add {listening.host_flags[0]}=0.0.0.0"
            if listening.host_flags
            else f"set the variable {listening.address} to 0.0.0.0:{facts.ports.start}"
        )
        yield EngineFinding(
            f"{profile.name} listens on the loopback address by default, so the pod "
            f"never becomes Ready; {remedy}"
        )


def _parallelism(facts: EngineFacts) -> Iterator[EngineFinding]:
    server = facts.server
    if _ON_CPU.search(server.image.lower()) or _value(facts, "--device") == "cpu":
        return
    given = {
        flag: number
        for flag in facts.profile.parallel_flags
        if (number := _number(facts, flag)) is not None
    }
    if find_flag(server, _SHARED_DEVICES):
        given.pop(SIZE[0], None)
    local = _number(facts, LOCAL[0])
    if SIZE[0] in given and (
        local is not None or any(find_flag(server, name) for name in _ELSEWHERE)
    ):
        del given[SIZE[0]]
        if local is not None:
            given[LOCAL[0]] = local
    ranks, devices = prod(given.values()), facts.all_devices
    if LOCAL[0] in given and facts.devices:
        devices = facts.devices
    shown = " x ".join(f"{flag} {number}" for flag, number in given.items())
    if devices and ranks > devices:
        where = "each pod has" if devices == facts.devices else "a copy has"
        yield EngineFinding(
            f"{shown} needs {ranks} devices, and {where} {devices}; lower the number of "
            "ranks, or request more devices in nodeSelector.devices",
            certain=facts.profile.name != profiles.CUSTOM,
        )
    nodes = _number(facts, _NODES_FLAG)
    if nodes is not None and nodes != facts.pods:
        yield EngineFinding(
            f"{_NODES_FLAG} is {nodes}, and a copy has {facts.pods} pods; set it to "
            f"{facts.pods}, or give the engine a Worker with worker.nodes: "
            f"{max(nodes - 1, 1)}",
            certain=is_known(facts),
        )


def _model(facts: EngineFacts) -> Iterator[EngineFinding]:
    profile = facts.profile
    if not facts.cache:
        return
    texts = [*facts.server.command, *facts.server.args]
    texts += [value or "" for value in facts.server.variables.values()]
    named = any(CACHE_PATH in text for text in texts)
    added = bool(profile.model_flag) and not facts.server.command
    if not named and not added and None not in facts.server.variables.values():
        yield EngineFinding(
            f"modelCacheRef is mounted at {CACHE_PATH}, and nothing in command, args and "
            f"env names this path, so {profile.name} does not load it; point it there",
            COMMAND if facts.server.command else ARGS,
        )
    flag = profile.served_name_flag
    if flag and _value(facts, flag) is None:
        yield EngineFinding(
            f"without {flag} the model is called {CACHE_PATH} in requests; add {flag} "
            "with the name that clients use"
        )


def _features(facts: EngineFacts) -> Iterator[EngineFinding]:
    profile = facts.profile
    if facts.adapters and not profile.adapters:
        yield EngineFinding(
            f"{profile.name} does not serve LoRA adapters, so requests for them fail; "
            "remove adapters, or set profile.adapters: true"
        )
    is_custom = profile.name == profiles.CUSTOM
    if facts.drains_late and not (profile.finishes_requests or is_custom):
        yield EngineFinding(
            f"drain.graceSeconds has no effect, because {profile.name} ends running "
            "requests at SIGTERM; set drain.preStopSeconds to the time of a long request"
        )
    if profile.name == profiles.LLAMA_CPP and not (
        find_flag(facts.server, "--metrics")
        or "LLAMA_ARG_ENDPOINT_METRICS" in facts.server.variables
    ):
        yield EngineFinding(
            "llama.cpp without --metrics has no metrics: the endpoint picker cannot see "
            "its load; add the flag"
        )


def _number(facts: EngineFacts, flag: str) -> int | None:
    value = _value(facts, flag)
    return Flag(flag, value, "").number if value is not None else None


def _value(facts: EngineFacts, flag: str) -> str | None:
    found = find_flag(facts.server, flag, *_SYNONYMS.get(flag, ()))
    if found:
        return found.value
    variable = _VARIABLES.get((facts.profile.name, flag), "")
    return facts.server.variables.get(variable) if variable else None


def _field(facts: EngineFacts, flag: Flag) -> str:
    # A script of `sh -c` is the last word, which users write into args.
    in_args = flag.place == "args" or (flag.place != "command" and facts.server.args)
    return ARGS if in_args else COMMAND


def _shown(ports: range) -> str:
    return f"{ports.start}" if len(ports) == 1 else f"{ports.start} to {ports[-1]}"
