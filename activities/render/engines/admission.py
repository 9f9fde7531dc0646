"""Read and check the spec of a ModelReplica before anything is rendered.

Admission rejects most problems earlier. A spec that was stored without admission is
rejected here, with every problem in one message. Running objects are not changed.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from activities.render.engines.container.probes import read_probes
from activities.render.engines.disruption import read_drain, read_min_available
from activities.render.engines.env import read_env
from activities.render.engines.options.adapters import (
    check_adapters,
    check_adapters_of_all,
    read_adapters,
)
from activities.render.engines.options.parallel import (
    check_ranks,
    read_flow_control,
    read_parallel,
)
from activities.render.engines.options.prefix_cache import (
    check_precise_cache,
    read_precise_cache,
)
from activities.render.engines.options.topology import check_topology, read_topology
from activities.render.engines.spec import (
    DECODE,
    LEADER,
    PREFILL,
    PREFILL_DECODE,
    STANDALONE,
    UNIFIED,
    WORKER,
    DeviceRequestSpec,
    EngineSpec,
    MemberSpec,
    ReplicaSpec,
)
from activities.render.inputs.findings import Findings
from activities.render.inputs.reader import Reader, check_encodable
from activities.render.objects import contract
from api_types import labels
from api_types.engines.profiles import CUSTOM_PROFILE, EngineProfile, profile_of
from api_types.resources.parts.engine_profile import ProfileOverrides
from api_types.validation.rules.metadata import (
    PREFIX_MAX,
    is_dns_label,
    is_label_value,
    label_key_problem,
    picker_label_problem,
)

_DNS_SUBDOMAIN = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)
_OUR_ANNOTATIONS = frozenset({labels.TEMPLATE_HASH, labels.PROPAGATED_HASH})
_SHAPES = ((STANDALONE,), (LEADER, WORKER))


def read_spec(spec: Mapping[str, Any], findings: Findings) -> ReplicaSpec:
    """Return the typed spec.

    It may be rendered only if `findings` contains no problem afterwards.
    """
    check_encodable(spec, "spec", findings)
    reader = Reader(spec, "spec", findings)
    mode = reader.object("serving").choice("mode", UNIFIED, (UNIFIED, PREFILL_DECODE))
    cache = reader.object("modelCacheRef").text(
        "name", required=reader.has("modelCacheRef")
    )
    engines = tuple(
        _engine(value, index, findings)
        for index, value in enumerate(reader.sequence("engines"))
    )
    if not engines:
        findings.problem(
            "spec", "engines is empty: a replica needs at least one engine"
        )
    for name, times in Counter(engine.name for engine in engines).items():
        if times > 1:
            findings.problem(
                f"engine {name}",
                f"the name is used {times} times: give each engine its own",
            )
    _check_phases(mode, engines, findings)
    check_ranks(engines, findings)
    check_adapters_of_all(engines, findings)
    for engine in engines:
        if engine.gang and not cache:
            findings.warn(
                f"engine {engine.name}",
                "several nodes without modelCacheRef: "
                "each of them downloads the model itself",
            )
    serving = reader.object("serving")
    found = ReplicaSpec(
        mode=mode,
        cache=cache,
        engines=engines,
        min_available=read_min_available(reader),
        flow_control=read_flow_control(serving),
        precise_cache=read_precise_cache(serving),
    )
    check_precise_cache(found, findings)
    return found


def _engine(value: Any, index: int, findings: Findings) -> EngineSpec:
    name = value.get("name") if isinstance(value, Mapping) else None
    reader = Reader(value, f"engine {name}" if name else f"engines[{index}]", findings)
    name = reader.text("name", required=True)
    if name and not is_dns_label(name):
        findings.problem(
            reader.where,
            "the name must be a DNS label: "
            "at most 63 of a-z, 0-9 and '-', no '-' at the ends",
        )
    copies = reader.integer("copies", 1, 1, 64)
    phase = reader.choice("phase", "", (PREFILL, DECODE))
    members = tuple(
        _member(member, reader.where, findings) for member in reader.sequence("members")
    )
    # Keep the user's order, but put the Leader first.
    members = tuple(sorted(members, key=lambda member: member.role == WORKER))
    if tuple(member.role for member in members) not in _SHAPES:
        roles = ", ".join(member.role for member in members) or "none"
        findings.problem(
            reader.where,
            f"members must be one Standalone, or one Leader and one Worker; has {roles}",
        )
    elif not any(member.requests for member in members):
        findings.problem(
            reader.where,
            "no member has deviceRequests: at least one must claim devices",
        )
    serving = next((member for member in members if member.role != WORKER), None)
    parallel = read_parallel(reader)
    if parallel.followers_serve:
        members = tuple(
            replace(member, follower_serves=member.role == WORKER) for member in members
        )
    engine = EngineSpec(
        name=name,
        copies=copies,
        phase=phase,
        members=members,
        drain=read_drain(reader),
        topology=read_topology(reader),
        adapters=read_adapters(reader),
        ranks=parallel.ports,
        profile=_profile(reader, serving) if serving else CUSTOM_PROFILE,
    )
    check_topology(engine, findings)
    check_adapters(engine, findings)
    return engine


def _member(value: Any, engine: str, findings: Findings) -> MemberSpec:
    role = value.get("role") if isinstance(value, Mapping) else None
    reader = Reader(value, f"{engine}, member {role or STANDALONE}", findings)
    role = reader.choice("role", STANDALONE, (STANDALONE, LEADER, WORKER))
    nodes = 1
    if role == WORKER:
        nodes = reader.object("worker").integer("nodes", 1, 1, 63)
    pool = reader.text("nodePoolName", required=True)
    if not is_label_value(pool):
        findings.problem(
            reader.where,
            f"nodePoolName {pool!r} is not a valid label value, so no node can carry it",
        )
    if role != WORKER and reader.has("worker"):
        findings.problem(reader.where, "worker is for Worker members only")
    template = reader.object("template")
    metadata = template.object("metadata")
    if not template.has("spec"):
        findings.problem(
            reader.where, "template.spec is missing: there is no pod to run"
        )
        container = Reader({}, reader.where, findings)
    else:
        container = _container(template.object("spec"), reader.where)
    return MemberSpec(
        role=role,
        pool=pool,
        nodes=nodes,
        image=container.text("image", required=template.has("spec")),
        command=container.texts("command"),
        args=container.texts("args"),
        env=read_env(container, gang=role != STANDALONE),
        pull_secrets=_pull_secrets(template.object("spec")),
        labels=_labels(metadata),
        annotations=_annotations(metadata),
        requests=_requests(reader),
        probes=read_probes(reader, role),
    )


def _container(pod: Reader, where: str) -> Reader:
    containers = pod.sequence("containers")
    if len(containers) != 1:
        pod.findings.problem(
            where, f"must have exactly one container, has {len(containers)}"
        )
    container = Reader(containers[0] if containers else {}, where, pod.findings)
    if containers and container.text("name") != contract.ENGINE_CONTAINER:
        pod.findings.problem(
            where,
            f"the only container must be called {contract.ENGINE_CONTAINER!r}, "
            f"is {container.text('name')!r}",
        )
    return container


def _pull_secrets(pod: Reader) -> tuple[str, ...]:
    where = f"{pod.where}, imagePullSecrets"
    secrets = [
        Reader(value, where, pod.findings).text("name", required=True)
        for value in pod.sequence("imagePullSecrets")
    ]
    for name in secrets:
        if contract.is_made_by_platform(name):
            pod.findings.problem(where, f"{name!r} {contract.PLATFORM_NAME_REFUSED}")
    # The list is keyed by name, so duplicates have no effect.
    return tuple(dict.fromkeys(secrets))


def _labels(metadata: Reader) -> Mapping[str, str]:
    given = metadata.object("labels").fields
    for key, value in given.items():
        if key.startswith(labels.RESERVED_PREFIX):
            metadata.findings.problem(
                metadata.where,
                f"label {key!r}: the prefix {labels.RESERVED_PREFIX} is reserved",
            )
        elif problem := label_key_problem(key):
            metadata.findings.problem(metadata.where, f"label {key!r}: {problem}")
        if not isinstance(value, str) or not is_label_value(value):
            metadata.findings.problem(
                metadata.where, f"label {key!r}: {value!r} is not a valid label value"
            )
        elif problem := picker_label_problem(key, value):
            metadata.findings.problem(metadata.where, f"label {key!r}: {problem}")
    return {key: str(value) for key, value in given.items()}


def _annotations(metadata: Reader) -> Mapping[str, str]:
    given = metadata.object("annotations").fields
    for key, value in given.items():
        if problem := label_key_problem(key.lower()):
            metadata.findings.problem(metadata.where, f"annotation {key!r}: {problem}")
        if not isinstance(value, str):
            metadata.findings.problem(
                metadata.where, f"annotation {key!r} must be a string, is {value!r}"
            )
        if key in _OUR_ANNOTATIONS:
            metadata.findings.warn(
                metadata.where, f"annotation {key!r} is dropped: the platform sets it"
            )
    return {
        key: str(value) for key, value in given.items() if key not in _OUR_ANNOTATIONS
    }


def _requests(member: Reader) -> tuple[DeviceRequestSpec, ...]:
    if member.has("deviceRequests") and not member.sequence("deviceRequests"):
        member.findings.problem(
            member.where,
            "deviceRequests is empty: leave it out when nothing is claimed",
        )
    requests = tuple(
        _request(value, index, member)
        for index, value in enumerate(member.sequence("deviceRequests"))
    )
    for name, times in Counter(request.name for request in requests).items():
        if times > 1:
            member.findings.problem(
                member.where,
                f"device request {name!r} is used {times} times: give each its own name",
            )
    return requests


def _request(value: Any, index: int, member: Reader) -> DeviceRequestSpec:
    findings = member.findings
    name = value.get("name") if isinstance(value, Mapping) else None
    reader = Reader(value, f"{member.where}, device request {name or index}", findings)
    name = reader.text("name", required=True)
    if name and not is_dns_label(name):
        findings.problem(
            reader.where, "the name must be a DNS label: at most 63 of a-z, 0-9 and '-'"
        )
    device_class = reader.text("deviceClassName")
    resource_name = reader.text("resourceName")
    if device_class and resource_name:
        findings.problem(
            reader.where,
            "give at most one of deviceClassName (DRA) and resourceName (device plugin)",
        )
    if device_class and not (
        len(device_class) <= PREFIX_MAX and _DNS_SUBDOMAIN.fullmatch(device_class)
    ):
        findings.problem(
            reader.where,
            f"deviceClassName must be a DNS subdomain, is {device_class!r}",
        )
    if resource_name and ("/" not in resource_name or label_key_problem(resource_name)):
        findings.problem(
            reader.where,
            f"resourceName must look like 'vendor.example/device', is {resource_name!r}",
        )
    selectors = []
    for position, selector in enumerate(reader.sequence("selectors")):
        entry = Reader(selector, f"{reader.where}, selectors[{position}]", findings)
        # An entry without text would widen the claim to any device of the class.
        selectors.append(entry.text("cel", required=True))
    return DeviceRequestSpec(
        name=name,
        count=reader.integer("count", 1, 1, 64),
        device_class=device_class,
        resource_name=resource_name,
        selectors=tuple(selectors),
    )


def _profile(engine: Reader, server: MemberSpec) -> EngineProfile:
    given = engine.object("profile").fields
    try:
        given = ProfileOverrides.model_validate(given).wire()
    except ValidationError as error:
        for one in error.errors(include_input=False, include_url=False):
            field = ".".join(map(str, one["loc"]))
            engine.findings.problem(engine.where, f"profile.{field}: {one['msg']}")
        given = {}
    return profile_of(server, given)


def _check_phases(
    mode: str, engines: tuple[EngineSpec, ...], findings: Findings
) -> None:
    if mode == PREFILL_DECODE:
        if sorted(engine.phase for engine in engines) != [DECODE, PREFILL]:
            shown = ", ".join(
                f"{engine.name}: {engine.phase or 'no phase'}" for engine in engines
            )
            findings.problem(
                "spec",
                "PrefillDecode needs exactly two engines, one Prefill and one Decode; "
                f"has {shown}",
            )
        return
    for engine in engines:
        if engine.phase:
            findings.problem(
                f"engine {engine.name}",
                "phase may be set only when serving.mode is PrefillDecode",
            )
