"""LoRA adapters: each is a separate cache, mounted next to the model.

The engine is opaque, so it gets no flags for adapters unless the user declares that it
is vLLM. Then the two flags that load the adapters are added, like the model flag.
"""

from activities.render.engines.container import weights
from activities.render.engines.context import Context
from activities.render.engines.pods import member_path
from activities.render.engines.spec import AdapterSpec, EngineSpec, MemberSpec
from activities.render.inputs.findings import Findings
from activities.render.inputs.reader import Reader
from activities.render.objects.manifest import Json
from api_types.engines.flags import find_flag
from api_types.engines.profiles import CUSTOM, VLLM
from api_types.limits import ADAPTERS_MAX, MODEL_NAMES_MAX
from api_types.validation.rules.metadata import is_dns_label
from api_types.validation.serving import (
    EngineAdapters,
    adapter_cache_problems,
    missing_adapters,
)

MOUNT_PATH = "/mnt/adapters"
_LOAD_VLLM = "VLLM"
_MODULES_FLAG = "--lora-modules"
_ENABLE_FLAG = "--enable-lora"
_VOLUME_PREFIX = "adapter-"


def read_adapters(engine: Reader) -> tuple[AdapterSpec, ...]:
    return tuple(
        _read_adapter(value, index, engine)
        for index, value in enumerate(engine.sequence("adapters")[:ADAPTERS_MAX])
    )


def check_adapters(engine: EngineSpec, findings: Findings) -> None:
    """Report adapter names that are duplicates or cannot be names of volumes."""
    where = f"engine {engine.name}, adapters"
    for name in dict.fromkeys(adapter.name for adapter in engine.adapters):
        times = sum(adapter.name == name for adapter in engine.adapters)
        if times > 1:
            findings.problem(
                where,
                f"{name!r} is used {times} times: give each adapter its own name",
            )
        if name and not is_dns_label(name):
            findings.problem(
                where,
                f"the name {name!r} must be a DNS label: "
                "lower-case letters, digits and '-'",
            )


def check_adapters_of_all(engines: tuple[EngineSpec, ...], findings: Findings) -> None:
    """Report an adapter name that refers to two adapters.

    Also warn about engines that lack an adapter of another engine, because requests may
    reach any engine.
    """
    adapted = [
        EngineAdapters(
            engine.name, [(adapter.name, adapter.cache) for adapter in engine.adapters]
        )
        for engine in engines
    ]
    for problem in adapter_cache_problems(adapted):
        findings.problem(
            f"engine {engines[problem.engine].name}, adapters", problem.text
        )
    for index, text in missing_adapters(adapted):
        findings.warn(f"engine {engines[index].name}", text)


def missing_claims(context: Context) -> bool:
    """Return whether the cache of any adapter is not ready on the cluster."""
    return any(
        not context.claim_of(adapter.cache)
        for engine in context.spec.engines
        for adapter in engine.adapters
    )


def mount_adapters(
    context: Context, engine: EngineSpec, member: MemberSpec, template: Json
) -> Json:
    """Add the adapters with a ready cache, and their flags, to a pod template."""
    mounted = [
        adapter for adapter in engine.adapters if context.claim_of(adapter.cache)
    ]
    if not mounted:
        return template
    spec = dict(template["spec"])
    container = dict(spec["containers"][0])
    mounts = [
        {
            "name": f"{_VOLUME_PREFIX}{adapter.name}",
            "mountPath": _path(adapter),
            "readOnly": True,
        }
        for adapter in mounted
    ]
    container["volumeMounts"] = [*container["volumeMounts"], *mounts]
    flags = _flags(context, engine, member)
    if flags:
        container["args"] = [*container.get("args", ()), *flags]
    # The volume itself is not read-only, because a volume that a pod may also write
    # through another mount is attached only once.
    volumes = [
        {
            "name": f"{_VOLUME_PREFIX}{adapter.name}",
            **weights.volume(context, adapter.cache),
        }
        for adapter in mounted
    ]
    spec["containers"] = [container, *spec["containers"][1:]]
    spec["volumes"] = [*spec["volumes"], *volumes]
    return {**template, "spec": spec}


def _read_adapter(value: object, index: int, engine: Reader) -> AdapterSpec:
    reader = Reader(value, f"{engine.where}, adapters[{index}]", engine.findings)
    return AdapterSpec(
        name=reader.text("name", required=True),
        cache=reader.object("modelCacheRef").text("name", required=True),
        vllm=reader.choice("load", "Mount", ("Mount", _LOAD_VLLM)) == _LOAD_VLLM,
        model_names=reader.texts("modelNames")[:MODEL_NAMES_MAX],
    )


def _path(adapter: AdapterSpec) -> str:
    return f"{MOUNT_PATH}/{adapter.name}"


def _flags(context: Context, engine: EngineSpec, member: MemberSpec) -> list[str]:
    modules = [
        f"{adapter.name}={_path(adapter)}"
        for adapter in engine.adapters
        if adapter.vllm
    ]
    if not modules or not member.serves:
        return []
    own = find_flag(member, _MODULES_FLAG)
    used = engine.profile.name
    text = ""
    if used not in (CUSTOM, VLLM):
        text = (
            f"load: VLLM adds flags of vLLM, but the engine looks like {used}: "
            "use load: Mount, and add the flags of that engine yourself"
        )
    elif member.command or own:
        why = f"{own.name} is set" if own else "the container has a command"
        text = (
            f"{why}, so no adapter is loaded by the platform: "
            f"add {_ENABLE_FLAG} {_MODULES_FLAG} {' '.join(modules)} yourself"
        )
    if text:
        context.findings.warn(member_path(engine, member), text)
    if member.command or own:
        return []
    return [
        *([] if find_flag(member, _ENABLE_FLAG) else [_ENABLE_FLAG]),
        _MODULES_FLAG,
        *modules,
    ]
