"""The pod of one engine member, before options are added to it.

The engine is opaque: image, command, args and environment are passed unchanged. The one
exception is the model flag. If an engine has no command of its own and no model flag,
the flag with the path of the cache is added.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

from activities.render.engines.claims import plugin_resources, pod_claim
from activities.render.engines.container import engine_type, policy, weights
from activities.render.engines.container.probes import probes
from activities.render.engines.context import Context
from activities.render.engines.env import gang_env, merge_env, rewritten
from activities.render.engines.spec import EngineSpec, MemberSpec
from activities.render.objects import contract
from activities.render.objects.manifest import Json, compact
from activities.render.objects.queues import PRIORITY_LABELS
from activities.render.objects.tolerations import toleration_keys, tolerations
from api_types import labels, names
from api_types.engines.flags import find_flag
from api_types.engines.profiles import MODEL_FLAG

# Flags that name the model. A second one would prevent the engine from starting.
_MODEL_FLAGS = (MODEL_FLAG, "-m", "--model-path", "--model-id", "-hf", "--hf-repo")
# Flags of vLLM that take no value, and flags that take all words up to the next flag.
_SWITCHES = re.compile(r"--(enable|disable|no)-.+|--enforce-eager|--trust-remote-code")
_FLAGS_WITH_SEVERAL = frozenset({"--served-model-name", "--lora-modules"})


def pod_template(
    context: Context, engine: EngineSpec, member: MemberSpec, port: int
) -> Json:
    """Return the pod template of a member. A serving member listens on `port`."""
    settings, granted = context.settings, policy.policy_of(context, member)
    volumes, mounts = policy.huge_page_volumes(granted)
    container = compact(
        name=contract.ENGINE_CONTAINER,
        image=member.image,
        command=list(member.command),
        args=[*member.args, *_model_flag(context, engine, member)],
        env=_environment(context, engine, member, policy.variables(granted)),
        resources=compact(
            **policy.resources(
                granted,
                member,
                dict(settings.engine_requests),
                plugin_resources(member),
            ),
            claims=[{"name": contract.CLAIM}] if member.claims else None,
        ),
        securityContext=policy.container_security(granted),
        volumeMounts=[*_mounts(context), *mounts],
    )
    if member.serves:
        container |= {
            "ports": _ports(engine, port),
            **probes(context, engine, port),
        }
    spec = compact(
        automountServiceAccountToken=False,
        containers=[container],
        # Disable service links. A Service called `vllm` in the namespace would set
        # VLLM_PORT=tcp://… in every pod, and vLLM would not start.
        enableServiceLinks=False,
        imagePullSecrets=_pull_secrets(context, engine, member),
        nodeSelector={labels.POOL: member.pool},
        resourceClaims=[pod_claim(context, engine, member)] if member.claims else None,
        runtimeClassName=granted.runtime_class_name,
        securityContext={"seccompProfile": policy.seccomp_profile(granted)},
        serviceAccountName=granted.service_account_name,
        terminationGracePeriodSeconds=settings.termination_grace_seconds,
        tolerations=policy.tolerations(granted, _tolerations(context, engine)),
        volumes=[
            *_volumes(context, policy.shared_memory(granted, settings.shm_size_limit)),
            *volumes,
        ],
    )
    metadata = compact(
        labels=_labels(context, engine, member),
        annotations=_annotations(context, engine, member),
    )
    return {**({"metadata": metadata} if metadata else {}), "spec": spec}


def _ports(engine: EngineSpec, port: int) -> list[Json]:
    ports: list[Json] = [{"name": contract.ENGINE_PORT_NAME, "containerPort": port}]
    if metrics_port := own_metrics_port(engine):
        ports.append(
            {"name": contract.METRICS_PORT_NAME, "containerPort": metrics_port}
        )
    return ports


def own_metrics_port(engine: EngineSpec) -> int:
    """Return the port of an engine's metrics; 0 if they have the port of requests."""
    profile = engine.profile
    is_other = profile.metrics_path and profile.metrics_port != profile.port
    return profile.metrics_port if is_other else 0


def override(
    context: Context, where: str, user: Mapping[str, str], managed: Mapping[str, str]
) -> dict[str, str]:
    """Override the user's labels or annotations, and warn about each changed value."""
    for key in managed:
        if user.get(key, managed[key]) != managed[key]:
            context.findings.warn(
                where,
                f"{key}={user[key]!r} is overwritten with {managed[key]!r}: "
                "the platform sets this key",
            )
    return {**user, **managed}


def member_path(engine: EngineSpec, member: MemberSpec) -> str:
    """Return the name of a member for messages."""
    return f"engine {engine.name}, member {member.role}"


def _labels(context: Context, engine: EngineSpec, member: MemberSpec) -> dict[str, str]:
    for key in sorted(member.labels.keys() & PRIORITY_LABELS):
        context.findings.problem(
            member_path(engine, member),
            f"label {key!r} is not allowed: cluster schedulers take the priority of the "
            "pod from it; set spec.scheduling.priorityClassName to a priority class of "
            "the fleet policy instead",
        )
    if not member.serves:
        return dict(member.labels)
    managed = {labels.SERVING: context.workload}
    if engine.gang:
        managed[labels.LWS_ROLE] = member.role.lower()
    else:
        managed[labels.WORKLOAD] = context.engine_name(engine)
    managed |= engine_type.label(engine, member_path(engine, member), context.findings)
    if context.replica.deployment:
        managed[contract.LLM_D_MODEL] = names.label_value(
            names.slug(context.replica.deployment)
        )
    return override(context, member_path(engine, member), member.labels, managed)


def _annotations(
    context: Context, engine: EngineSpec, member: MemberSpec
) -> dict[str, str]:
    refused = context.settings.refused_annotations
    for key in member.annotations:
        if labels.is_refused_annotation(key, refused):
            context.findings.problem(
                member_path(engine, member),
                f"annotation {key!r} is not allowed: controllers add containers, volumes, "
                "devices or rights to the pod because of it; an operator may allow it in "
                "the setting workloads.refusedAnnotations",
            )
    rotation = (
        context.replica.propagated_hash if context.settings.restart_on_rotation else ""
    )
    return {
        **member.annotations,
        **({labels.PROPAGATED_HASH: rotation} if rotation else {}),
    }


def _environment(
    context: Context,
    engine: EngineSpec,
    member: MemberSpec,
    granted: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    user = [rewritten(variable, context.replica.propagated) for variable in member.env]
    return merge_env(
        before=[*(gang_env() if engine.gang else []), *granted], user=user, after=[]
    )


def _model_flag(context: Context, engine: EngineSpec, member: MemberSpec) -> list[str]:
    added = engine.profile.model_flag
    if not added or not context.spec.cache or not member.serves or member.command:
        return []
    if find_flag(member, added):
        return []
    first = member.args[0] if member.args else ""
    # `vllm serve` is the entry point of current images. It takes the model as a
    # positional argument, and rejects a second model in a flag.
    if any(
        PurePosixPath(word).is_relative_to(contract.CACHE_MOUNT_PATH)
        for word in _words_without_flag(member)
    ):
        return []
    if added == MODEL_FLAG and first and not first.startswith("-"):
        context.findings.warn(
            member_path(engine, member),
            f"args begin with {first!r}, which names the model where the entry point is "
            f"`vllm serve`, so {added}={contract.CACHE_MOUNT_PATH} is not added: "
            "point it at the cache yourself",
        )
        return []
    other = find_flag(member, *_MODEL_FLAGS)
    if other:
        context.findings.warn(
            member_path(engine, member),
            f"{other.name} names the model, so "
            f"{added}={contract.CACHE_MOUNT_PATH} is not added: "
            "point it at the cache yourself",
        )
        return []
    return [f"{added}={contract.CACHE_MOUNT_PATH}"]


def _words_without_flag(member: MemberSpec) -> Iterator[str]:
    """Yield the words of the args that belong to no flag.

    These are the first word, and words after a value or a switch.
    """
    flag = ""
    for before, word in pairwise(("", *member.args)):
        if word.startswith("-"):
            flag = word.replace("_", "-")
        elif flag not in _FLAGS_WITH_SEVERAL and (
            "=" in before or not before.startswith("-") or _SWITCHES.fullmatch(flag)
        ):
            yield word


def _pull_secrets(
    context: Context, engine: EngineSpec, member: MemberSpec
) -> list[Json]:
    wanted = dict.fromkeys(
        (*member.pull_secrets, *weights.pull_secrets(context, engine))
    )
    return [
        {"name": context.replica.propagated.get(f"Secret/{name}", name)}
        for name in wanted
    ]


def _mounts(context: Context) -> list[Json]:
    mounts: list[Json] = [
        {"name": contract.SHM_VOLUME, "mountPath": contract.SHM_MOUNT_PATH}
    ]
    if context.cache_claim:
        read_only = (
            context.settings.cache_mount_read_only
            or bool(context.mount_of(context.spec.cache).image)
            or None
        )
        mounts.append(
            compact(
                name=contract.CACHE_VOLUME,
                mountPath=contract.CACHE_MOUNT_PATH,
                readOnly=read_only,
            )
        )
    return mounts


def _volumes(context: Context, shared_memory: Json) -> list[Json]:
    volumes = [shared_memory]
    if context.cache_claim:
        volumes.append(
            {
                "name": contract.CACHE_VOLUME,
                **weights.volume(context, context.spec.cache),
            }
        )
    return volumes


def _tolerations(context: Context, engine: EngineSpec) -> list[Json]:
    # Consider the whole engine: a leader without devices still runs on its workers'
    # pool.
    requests = [request for member in engine.members for request in member.requests]
    drivers = [
        context.facts.drivers.get(request.device_class, request.device_class)
        for request in requests
    ]
    resources = [request.resource_name for request in requests]
    return tolerations(
        toleration_keys(context.settings.toleration_keys, drivers, resources)
    )
