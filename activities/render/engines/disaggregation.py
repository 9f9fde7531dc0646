"""Disaggregated prefill and decode, added to engines that are rendered as usual.

A sidecar listens on port 8000 in front of the decode engine. It sends each request to a
prefill pod first, and passes on the KV cache. The role of an engine is its phase, never
its name.
"""

import re

from activities.render.engines import tracing
from activities.render.engines.context import Context
from activities.render.engines.env import merge_env
from activities.render.engines.json_flags import read_json_object
from activities.render.engines.options import parallel
from activities.render.engines.pods import member_path, override
from activities.render.engines.spec import DECODE, PREFILL, EngineSpec, MemberSpec
from activities.render.objects import contract
from activities.render.objects.manifest import Json, compact
from activities.render.objects.propagation import pull_secrets
from api_types.engines.flags import Flag, find_flag
from api_types.limits import PORT_MAX

_SIDECAR = "pd-sidecar"
# The sidecar uses this variable to address its ranks.
_POD_IP: Json = {
    "name": "POD_IP",
    "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
}
_SIDECAR_PORT_NAME = "proxy"
# From this release on, an init container may keep running and continues on shutdown
# until the engine has ended.
_NATIVE_SIDECARS_SINCE = (1, 29)
_NIXL_PORT = "5557"
_CONNECTOR_FLAG = "--kv-transfer-config"
_SGLANG_FLAG = "--disaggregation-mode"
_DEFAULT_CONNECTOR = "nixlv2"
_CONNECTORS = {
    "NixlConnector": "nixlv2",
    "SharedStorageConnector": "shared-storage",
    "MooncakeConnector": "mooncake",
}
# The default of the engines and the sidecar, and the variable that overrides it in the
# sidecar.
_BOOTSTRAP_PORT = 8998
_SIDECAR_BOOTSTRAP = {
    "sglang": "SGLANG_BOOTSTRAP_PORT",
    "mooncake": "MOONCAKE_BOOTSTRAP_PORT",
}
_MOONCAKE_PORT = "VLLM_MOONCAKE_BOOTSTRAP_PORT"
_CONNECTOR_IN_TEXT = re.compile(r"\"kv_connector\"\s*:\s*\"(\w+)\"")


def engine_port(context: Context, engine: EngineSpec) -> int:
    """Return the port of an engine's serving pods.

    Also report an invalid decode port, and ports that get no traffic.
    """
    decode = context.spec.disaggregated and engine.phase == DECODE
    default = parallel.decode_port(engine) if decode else engine.profile.port
    flag = find_flag(engine.server, "--port")
    where = member_path(engine, engine.server)
    if flag is None:
        if decode:
            context.findings.warn(
                where,
                "no --port is found: the sidecar listens on "
                f"{contract.ENGINE_PORT}, the default port of vLLM, and sends requests "
                f"to {default}; add --port={default} to args",
            )
        return default
    port = parallel.first_port(engine, flag)
    if port is None:
        context.findings.warn(
            where,
            f"--port {flag.value!r} is not a number that can be read here: "
            f"{default} is assumed",
        )
        return default
    if decode and parallel.is_taken(engine, port):
        context.findings.problem(
            where,
            f"--port {port} is taken by the sidecar: "
            f"use {parallel.decode_port(engine)} or leave it out",
        )
    elif (decode or engine.ranks > 1) and (
        bounds := parallel.port_bounds(engine, port)
    ):
        context.findings.problem(
            where, f"--port must be {bounds}, is {_shown(flag, port)}"
        )
    elif not decode and port != default:
        context.findings.warn(
            where,
            f"--port is {_shown(flag, port)}, but requests go to {default}: "
            "the engine must listen there",
        )
    return port if decode else default


def _shown(flag: Flag, port: int) -> str:
    return str(port) if flag.number is None else flag.value


def connector(context: Context, engine: EngineSpec) -> str:
    """Return the sidecar's name for the KV connector of the decode engine."""
    dotted = find_flag(engine.server, f"{_CONNECTOR_FLAG}.kv_connector")
    config = find_flag(engine.server, _CONNECTOR_FLAG)
    name = dotted.value if dotted else _connector_in(config.value) if config else ""
    if name in _CONNECTORS:
        return _CONNECTORS[name]
    if name:
        context.findings.warn(
            member_path(engine, engine.server),
            f"kv_connector {name!r} is not one of {', '.join(_CONNECTORS)}: "
            f"the sidecar uses {_DEFAULT_CONNECTOR}",
        )
    elif find_flag(engine.server, _SGLANG_FLAG):
        return "sglang"
    return _DEFAULT_CONNECTOR


def decorate(
    context: Context, engine: EngineSpec, member: MemberSpec, template: Json, port: int
) -> Json:
    """Add role labels, NIXL variables and a decode engine's sidecar to a template."""
    spec = dict(template["spec"])
    container = dict(spec["containers"][0])
    container["env"] = merge_env(
        before=[], user=container.get("env", []), after=_nixl_env()
    )
    spec["containers"] = [container]
    if not member.serves:
        return {**template, "spec": spec}
    if engine.phase == DECODE:
        sidecar = _sidecar(context, engine, port)
        if context.cluster.at_least(*_NATIVE_SIDECARS_SINCE):
            spec["initContainers"] = [{**sidecar, "restartPolicy": "Always"}]
        else:
            spec["containers"].append(sidecar)
        platform = pull_secrets(context.settings)
        if platform:
            spec["imagePullSecrets"] = [*spec.get("imagePullSecrets", []), *platform]
    managed = {
        contract.LLM_D_ROLE: "prefill" if engine.phase == PREFILL else "decode",
        contract.LLM_D_SERVING: "true",
        contract.APP: context.workload,
    }
    metadata = dict(template["metadata"])
    metadata["labels"] = override(
        context, member_path(engine, member), metadata["labels"], managed
    )
    return {**template, "metadata": metadata, "spec": spec}


def _connector_in(text: str) -> str:
    config = read_json_object(text)
    if config is None:
        # A shell may expand parts of the text later.
        found = _CONNECTOR_IN_TEXT.search(text)
        return found[1] if found else ""
    return str(config.get("kv_connector", ""))


def _nixl_env() -> list[Json]:
    return [
        {
            "name": "VLLM_NIXL_SIDE_CHANNEL_HOST",
            "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
        },
        {"name": "VLLM_NIXL_SIDE_CHANNEL_PORT", "value": _NIXL_PORT},
    ]


def _sidecar(context: Context, engine: EngineSpec, port: int) -> Json:
    sidecar: Json = {
        "name": _SIDECAR,
        "image": context.settings.sidecar_image,
        "args": [
            "--secure-proxy=false",
            f"--kv-connector={connector(context, engine)}",
            f"--vllm-port={port}",
        ],
        "ports": parallel.container_ports(
            _SIDECAR_PORT_NAME, contract.ENGINE_PORT, engine.ranks
        ),
        "readinessProbe": {
            "httpGet": {
                "path": engine.profile.health_path,
                "port": contract.ENGINE_PORT,
            },
            **contract.READINESS,
        },
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "securityContext": contract.restricted(),
    }
    env = _bootstrap_env(context)
    if engine.ranks > 1:
        sidecar["args"] = [*sidecar["args"], f"--data-parallel-size={engine.ranks}"]
        env += [_POD_IP]
    if context.settings.tracing_enabled:
        sidecar["args"] = [*sidecar["args"], "--tracing"]
        env += tracing.environment(context.settings, "llm-d-routing-sidecar")
    return {**sidecar, **compact(env=env)}


def _bootstrap_env(context: Context) -> list[Json]:
    # The sidecar passes a port of the prefill pod to the decode engine. The transfer of
    # a KV cache starts at this port.
    prefill = context.spec.phase(PREFILL)
    used = connector(context, context.spec.phase(DECODE))
    if used == "sglang":
        given = find_flag(prefill.server, "--disaggregation-bootstrap-port")
    elif used == "mooncake":
        values = [
            str(variable.get("value"))
            for variable in prefill.server.env
            if variable["name"] == _MOONCAKE_PORT
        ]
        given = Flag(_MOONCAKE_PORT, values[0], "env") if values else None
    else:
        return []
    if given is None or given.number == _BOOTSTRAP_PORT:
        return []
    if not (given.number and given.number <= PORT_MAX):
        context.findings.warn(
            member_path(prefill, prefill.server),
            f"{given.name} {given.value!r} is not a port that can be read here: "
            f"the sidecar uses {_BOOTSTRAP_PORT}",
        )
        return []
    return [{"name": _SIDECAR_BOOTSTRAP[used], "value": str(given.number)}]
