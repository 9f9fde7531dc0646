"""The pod of one engine member, before anything is put around it.

The engine is opaque: image, command, args and environment go through byte for byte. The one exception is the model flag, which points
an engine without a command of its own at the cache.
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
from activities.render.engines.flags import find_flag
from activities.render.engines.spec import LEADER, Engine, Member
from activities.render.objects import contract
from activities.render.objects.manifest import Json, compact
from activities.render.objects.queues import PRIORITY_LABELS
from activities.render.objects.tolerations import toleration_keys, tolerations
from api_types import labels, names

_MODEL_FLAG = "--model"
# How other engines name the model: a second flag would break their start.
_OTHER_MODEL_FLAGS = ("-m", "--model-path", "--model-id", "-hf", "--hf-repo")
# Flags of vLLM that take no value, and those that take all words up to the next flag.
_SWITCHES = re.compile(r"--(enable|disable|no)-.+|--enforce-eager|--trust-remote-code")
_FLAGS_WITH_SEVERAL = frozenset({"--served-model-name", "--lora-modules"})


def pod_template(context: Context, engine: Engine, member: Member, port: int) -> Json:
    """Give the pod template of a member. `port` is where a serving one listens."""
    settings, granted = context.settings, policy.policy_of(context, member)
    volumes, mounts = policy.huge_page_volumes(granted)
    container = compact(
        name=contract.ENGINE_CONTAINER,
        image=member.image,
        command=list(member.command),
        args=[*member.args, *_model_flag(context, engine, member)],
        env=_environment(context, engine, member, policy.variables(granted)),
        resources=compact(
            **policy.resources(granted, dict(settings.engine_requests), plugin_resources(member)),
            claims=[{"name": contract.CLAIM}] if member.claims else None,
        ),
        securityContext=policy.container_security(granted),
        volumeMounts=[*_mounts(context), *mounts],
    )
    if member.serves:
        container |= {"ports": [{"name": contract.ENGINE_PORT_NAME, "containerPort": port}], **probes(context, member, port)}
    spec = compact(
        automountServiceAccountToken=False,
        containers=[container],
        # A Service called `vllm` in the namespace would set VLLM_PORT=tcp://… in every pod, which vLLM refuses to start with.
        enableServiceLinks=False,
        imagePullSecrets=_pull_secrets(context, engine, member),
        nodeSelector={labels.POOL: member.pool},
        resourceClaims=[pod_claim(context, engine, member)] if member.claims else None,
        runtimeClassName=granted.runtime_class_name,
        securityContext={"seccompProfile": policy.seccomp_profile(granted)},
        serviceAccountName=granted.service_account_name,
        terminationGracePeriodSeconds=settings.termination_grace_seconds,
        tolerations=policy.tolerations(granted, _tolerations(context, engine)),
        volumes=[*_volumes(context, policy.shared_memory(granted, settings.shm_size_limit)), *volumes],
    )
    metadata = compact(labels=_labels(context, engine, member), annotations=_annotations(context, engine, member))
    return {**({"metadata": metadata} if metadata else {}), "spec": spec}


def override(context: Context, where: str, user: Mapping[str, str], managed: Mapping[str, str]) -> dict[str, str]:
    """Override the user's labels or annotations with managed ones; a different value of the user is a warning."""
    for key in managed:
        if user.get(key, managed[key]) != managed[key]:
            context.findings.warn(where, f"{key}={user[key]!r} is overwritten with {managed[key]!r}: the platform sets this key")
    return {**user, **managed}


def member_path(engine: Engine, member: Member) -> str:
    """Name a member in messages."""
    return f"engine {engine.name}, member {member.role}"


def _labels(context: Context, engine: Engine, member: Member) -> dict[str, str]:
    for key in sorted(member.labels.keys() & PRIORITY_LABELS):
        context.findings.problem(
            member_path(engine, member),
            f"label {key!r} is not for users: schedulers of clusters take the priority of the pod from it; "
            "name a priority class of the fleet policy in spec.scheduling.priorityClassName instead",
        )
    if not member.serves:
        return dict(member.labels)
    managed = {labels.SERVING: context.workload}
    if member.role == LEADER:
        managed[labels.LWS_ROLE] = "leader"
    else:
        managed[labels.WORKLOAD] = context.engine_name(engine)
    managed |= engine_type.label(member, member_path(engine, member), context.findings)
    if context.replica.deployment:
        managed[contract.LLM_D_MODEL] = names.label_value(names.slug(context.replica.deployment))
    return override(context, member_path(engine, member), member.labels, managed)


def _annotations(context: Context, engine: Engine, member: Member) -> dict[str, str]:
    refused = context.settings.refused_annotations
    for key in member.annotations:
        if labels.is_refused_annotation(key, refused):
            context.findings.problem(
                member_path(engine, member),
                f"annotation {key!r} is not for users: others add containers, volumes, devices or rights to the pod by it; "
                "an operator may allow it in the setting workloads.refusedAnnotations",
            )
    rotation = context.replica.propagated_hash if context.settings.restart_on_rotation else ""
    return {**member.annotations, **({labels.PROPAGATED_HASH: rotation} if rotation else {})}


def _environment(context: Context, engine: Engine, member: Member, granted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    user = [rewritten(variable, context.replica.propagated) for variable in member.env]
    return merge_env(before=[*(gang_env() if engine.gang else []), *granted], user=user, after=[])


def _model_flag(context: Context, engine: Engine, member: Member) -> list[str]:
    if not context.spec.cache or not member.serves or member.command:
        return []
    if find_flag(member, _MODEL_FLAG):
        return []
    first = member.args[0] if member.args else ""
    # `vllm serve` is the entry point of current images: it takes the model as a word without a flag, and no second one in a flag.
    if any(PurePosixPath(word).is_relative_to(contract.CACHE_MOUNT_PATH) for word in _words_without_flag(member)):
        return []
    if first and not first.startswith("-"):
        context.findings.warn(
            member_path(engine, member),
            f"args begin with {first!r}, which names the model where the entry point is `vllm serve`, so "
            f"{_MODEL_FLAG}={contract.CACHE_MOUNT_PATH} is not added: point it at the cache yourself",
        )
        return []
    other = find_flag(member, *_OTHER_MODEL_FLAGS)
    if other:
        context.findings.warn(
            member_path(engine, member),
            f"{other.name} names the model, so {_MODEL_FLAG}={contract.CACHE_MOUNT_PATH} is not added: point it at the cache yourself",
        )
        return []
    return [f"{_MODEL_FLAG}={contract.CACHE_MOUNT_PATH}"]


def _words_without_flag(member: Member) -> Iterator[str]:
    """Give the words of the args that can belong to no flag: the first one, and those behind a value or a switch."""
    flag = ""
    for before, word in pairwise(("", *member.args)):
        if word.startswith("-"):
            flag = word.replace("_", "-")
        elif flag not in _FLAGS_WITH_SEVERAL and ("=" in before or not before.startswith("-") or _SWITCHES.fullmatch(flag)):
            yield word


def _pull_secrets(context: Context, engine: Engine, member: Member) -> list[Json]:
    wanted = dict.fromkeys((*member.pull_secrets, *weights.pull_secrets(context, engine)))
    return [{"name": context.replica.propagated.get(f"Secret/{name}", name)} for name in wanted]


def _mounts(context: Context) -> list[Json]:
    mounts: list[Json] = [{"name": contract.SHM_VOLUME, "mountPath": contract.SHM_MOUNT_PATH}]
    if context.cache_claim:
        read_only = context.settings.cache_mount_read_only or bool(context.mount_of(context.spec.cache).image) or None
        mounts.append(compact(name=contract.CACHE_VOLUME, mountPath=contract.CACHE_MOUNT_PATH, readOnly=read_only))
    return mounts


def _volumes(context: Context, shared_memory: Json) -> list[Json]:
    volumes = [shared_memory]
    if context.cache_claim:
        volumes.append({"name": contract.CACHE_VOLUME, **weights.volume(context, context.spec.cache)})
    return volumes


def _tolerations(context: Context, engine: Engine) -> list[Json]:
    # Of the whole engine: a coordinating leader without devices still runs on the pool of its workers.
    requests = [request for member in engine.members for request in member.requests]
    drivers = [context.facts.drivers.get(request.device_class, request.device_class) for request in requests]
    resources = [request.resource_name for request in requests]
    return tolerations(toleration_keys(context.settings.toleration_keys, drivers, resources))
