"""Disaggregated prefill and decode: what is added to engines that were rendered like any other.

A sidecar listens on port 8000 in front of the decode engine, sends each request to a prefill pod first, and passes on its KV cache. Roles
come from the phase of an engine, never from its name.
"""

import re

from activities.render.engines import tracing
from activities.render.engines.context import Context
from activities.render.engines.env import merge_env
from activities.render.engines.flags import Flag, find_flag
from activities.render.engines.json_flags import read_json_object
from activities.render.engines.options import parallel
from activities.render.engines.pods import member_path, override
from activities.render.engines.spec import DECODE, PREFILL, Engine, Member
from activities.render.objects import contract
from activities.render.objects.manifest import Json, compact
from activities.render.objects.propagation import pull_secrets

_SIDECAR = "pd-sidecar"
# By which the sidecar knows the addresses of its ranks.
_POD_IP: Json = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
_SIDECAR_PORT_NAME = "proxy"
# From this release on, an init container may keep running beside the others, and outlives the engine on shutdown.
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
# The default of the engines and of the sidecar, and the variable by which the sidecar is told another.
_BOOTSTRAP_PORT = 8998
_SIDECAR_BOOTSTRAP = {"sglang": "SGLANG_BOOTSTRAP_PORT", "mooncake": "MOONCAKE_BOOTSTRAP_PORT"}
_MOONCAKE_PORT = "VLLM_MOONCAKE_BOOTSTRAP_PORT"
_CONNECTOR_IN_TEXT = re.compile(r"\"kv_connector\"\s*:\s*\"(\w+)\"")


def engine_port(context: Context, engine: Engine) -> int:
    """Give the port of an engine's serving pods; adds findings for a decode port that cannot work, and for ports without traffic."""
    decode = context.spec.disaggregated and engine.phase == DECODE
    default = parallel.decode_port(engine) if decode else contract.ENGINE_PORT
    flag = find_flag(engine.server, "--port")
    where = member_path(engine, engine.server)
    if flag is None:
        if decode:
            context.findings.warn(
                where,
                f"no --port is found: the sidecar takes {contract.ENGINE_PORT}, where vLLM listens by default, and sends requests to "
                f"{default}; add --port={default} to args",
            )
        return default
    port = parallel.first_port(engine, flag)
    if port is None:
        context.findings.warn(where, f"--port {flag.value!r} is no number that can be read here: {default} is assumed")
        return default
    if decode and parallel.is_taken(engine, port):
        context.findings.problem(where, f"--port {port} is taken by the sidecar: use {parallel.decode_port(engine)} or leave it out")
    elif (decode or engine.ranks > 1) and (bounds := parallel.port_bounds(engine, port)):
        context.findings.problem(where, f"--port must be {bounds}, is {_shown(flag, port)}")
    elif not decode and port != default:
        context.findings.warn(where, f"--port is {_shown(flag, port)}, but requests go to {default}: the engine must listen there")
    return port if decode else default


def _shown(flag: Flag, port: int) -> str:
    return str(port) if flag.number is None else flag.value


def connector(context: Context, engine: Engine) -> str:
    """Give the sidecar's name for the KV connector of the decode engine."""
    dotted = find_flag(engine.server, f"{_CONNECTOR_FLAG}.kv_connector")
    config = find_flag(engine.server, _CONNECTOR_FLAG)
    name = dotted.value if dotted else _connector_in(config.value) if config else ""
    if name in _CONNECTORS:
        return _CONNECTORS[name]
    if name:
        context.findings.warn(
            member_path(engine, engine.server),
            f"kv_connector {name!r} is none of {', '.join(_CONNECTORS)}: the sidecar uses {_DEFAULT_CONNECTOR}",
        )
    elif find_flag(engine.server, _SGLANG_FLAG):
        return "sglang"
    return _DEFAULT_CONNECTOR


def decorate(context: Context, engine: Engine, member: Member, template: Json, port: int) -> Json:
    """Give the pod template of a phase engine's member with role labels, NIXL environment and, for decode, the sidecar."""
    spec = dict(template["spec"])
    container = dict(spec["containers"][0])
    container["env"] = merge_env(before=[], user=container.get("env", []), after=_nixl_env())
    spec["containers"] = [container]
    if not member.serves:
        return {**template, "spec": spec}
    if engine.phase == DECODE:
        sidecar = _sidecar(context, engine, port)
        if context.cluster.at_least(*_NATIVE_SIDECARS_SINCE):
            spec["initContainers"] = [{**sidecar, "restartPolicy": "Always"}]
        else:
            spec["containers"].append(sidecar)
        if platform := pull_secrets(context.settings):
            spec["imagePullSecrets"] = [*spec.get("imagePullSecrets", []), *platform]
    managed = {
        contract.LLM_D_ROLE: "prefill" if engine.phase == PREFILL else "decode",
        contract.LLM_D_SERVING: "true",
        contract.APP: context.workload,
    }
    metadata = dict(template["metadata"])
    metadata["labels"] = override(context, member_path(engine, member), metadata["labels"], managed)
    return {**template, "metadata": metadata, "spec": spec}


def _connector_in(text: str) -> str:
    config = read_json_object(text)
    if config is None:  # a shell may fill in parts of the text later
        found = _CONNECTOR_IN_TEXT.search(text)
        return found[1] if found else ""
    return str(config.get("kv_connector", ""))


def _nixl_env() -> list[Json]:
    return [
        {"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "VLLM_NIXL_SIDE_CHANNEL_PORT", "value": _NIXL_PORT},
    ]


def _sidecar(context: Context, engine: Engine, port: int) -> Json:
    sidecar: Json = {
        "name": _SIDECAR,
        "image": context.settings.sidecar_image,
        "args": ["--secure-proxy=false", f"--kv-connector={connector(context, engine)}", f"--vllm-port={port}"],
        "ports": parallel.container_ports(_SIDECAR_PORT_NAME, contract.ENGINE_PORT, engine.ranks),
        "readinessProbe": {"httpGet": {"path": contract.HEALTH_PATH, "port": contract.ENGINE_PORT}, **contract.READINESS},
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
    # The sidecar tells the decode engine at which port of the prefill pod the transfer of a KV cache begins.
    prefill = context.spec.phase(PREFILL)
    used = connector(context, context.spec.phase(DECODE))
    if used == "sglang":
        given = find_flag(prefill.server, "--disaggregation-bootstrap-port")
    elif used == "mooncake":
        values = [str(variable.get("value")) for variable in prefill.server.env if variable["name"] == _MOONCAKE_PORT]
        given = Flag(_MOONCAKE_PORT, values[0], "env") if values else None
    else:
        return []
    if given is None or given.number == _BOOTSTRAP_PORT:
        return []
    if not (given.number and given.number <= parallel.PORT_MAX):
        context.findings.warn(
            member_path(prefill, prefill.server),
            f"{given.name} {given.value!r} is no port that can be read here: the sidecar asks at {_BOOTSTRAP_PORT}",
        )
        return []
    return [{"name": _SIDECAR_BOOTSTRAP[used], "value": str(given.number)}]
