"""Rules for engines, members and pods, for ModelDeployment and ModelReplica."""

from collections import Counter

from api_types.limits import (
    MEMBERS_MAX,
    SCHEDULING_BYTES_MAX,
    SELECTORS_BYTES_MAX,
    SELECTORS_COST_MAX,
    SELECTORS_REFUSED_MAX,
    cost_problem,
    not_checked,
)
from api_types.resources.model_deployment import (
    DeviceRequest,
    DeviceSelector,
    Engine,
    Member,
    ModelDeploymentSpec,
    ReplicaTemplateSpec,
    Toleration,
)
from api_types.resources.model_replica import (
    ModelReplicaSpec,
    ReplicaEngine,
    ReplicaMember,
    ResolvedRequest,
)
from api_types.resources.parts.engines import Phase
from api_types.resources.parts.pod_template import EngineContainer, EnvVar, EnvVarSource
from api_types.resources.parts.probes import NO_FOLLOWERS
from api_types.validation.model_walk import walk
from api_types.validation.problems import Loc
from api_types.validation.rules.disruption import evictions_can_happen
from api_types.validation.rules.metadata import is_dns_label
from api_types.validation.rules.rule import Findings, RuleContext, Rules, set_fields

AnyEngine = Engine | ReplicaEngine
AnyMember = Member | ReplicaMember
AnySpec = ReplicaTemplateSpec | ModelReplicaSpec

_PHASES: tuple[Phase, ...] = ("Prefill", "Decode")


def phases_fit_the_mode(spec: AnySpec, context: RuleContext) -> Findings:
    """Require one engine of each phase in PrefillDecode, and no phases in other modes."""
    engines: tuple[AnyEngine, ...] = spec.engines
    if spec.serving_mode == "PrefillDecode":
        if len(engines) != len(_PHASES):
            got = len(engines)
            yield context.error(
                f"PrefillDecode needs exactly two engines, one Prefill and one Decode; got {got}",
                "engines",
            )
            return
        count = Counter(engine.phase for engine in engines)
        wrong = [phase for phase in _PHASES if count[phase] != 1]
        if wrong:
            first, *others = wrong
            text = f"needs exactly one engine with phase {first}, got {count[first]}"
            for phase in others:
                text += f"; and exactly one with phase {phase}, got {count[phase]}"
            yield context.error(text, "engines")
        return
    for index, engine in enumerate(engines):
        if engine.phase is not None:
            yield context.error(
                "allowed only when serving.mode is PrefillDecode",
                "engines",
                index,
                "phase",
            )


def gang_has_a_cache(spec: ReplicaTemplateSpec, context: RuleContext) -> Findings:
    """Warn of a gang without a cache.

    Every rank downloads the weights itself, perhaps in a different revision.
    """
    if spec.model_cache_ref is not None:
        return
    for index, engine in enumerate(spec.engines):
        if any(member.role == "Leader" for member in engine.members):
            yield context.warning(
                "a Leader and Worker engine should share its weights; set modelCacheRef",
                "engines",
                index,
            )


def network_domain_has_an_effect(
    spec: ModelDeploymentSpec, context: RuleContext
) -> Findings:
    """Warn of a shared network between engines that exchange no data."""
    mode = spec.template.spec.serving_mode
    if (
        spec.scheduling is not None
        and spec.scheduling.network_domain != "Ignore"
        and mode != "PrefillDecode"
    ):
        text = (
            f"setting has no effect on serving mode {mode}: only the engines of a "
            "PrefillDecode replica share a network"
        )
        yield context.warning(text, "scheduling", "networkDomain")


def placement_can_be_carried(
    spec: ModelDeploymentSpec, context: RuleContext
) -> Findings:
    """Limit the size of all placement input except device selectors.

    A list of names has no other limit.
    """
    template = spec.template.spec
    size = 0
    for part in (
        spec.scheduling,
        template.cluster_selector,
        *(template.tolerations or ()),
    ):
        if part is not None:
            size += len(
                part.model_dump_json(
                    by_alias=True, exclude_none=True, warnings=False
                ).encode()
            )
    if size > SCHEDULING_BYTES_MAX:
        yield context.error(
            "scheduling, template.spec.clusterSelector and "
            "template.spec.tolerations together must be at most "
            f"{SCHEDULING_BYTES_MAX} bytes of JSON, got {size}; name fewer "
            "namespaces, labels and values"
        )


def selectors_can_be_used(spec: AnySpec, context: RuleContext) -> Findings:
    """Reject selectors that do not compile, and limit all selectors together.

    Every replica's placement has a copy of them, and every device of the fleet is
    matched with each. Selectors beyond the size limit are not compiled.
    """
    selectors = [
        (at, value.cel)
        for value, at in walk(spec)
        if isinstance(value, DeviceSelector) and isinstance(value.cel, str)
    ]
    size = sum(len(text.encode(errors="surrogatepass")) for _, text in selectors)
    if size > SELECTORS_BYTES_MAX:
        yield context.error(
            "the selectors of all engines together must be at most "
            f"{SELECTORS_BYTES_MAX} bytes, got {size}",
            "engines",
        )
        return
    costs: list[tuple[str, int]] = []
    refused = total = 0
    for at, text in selectors:
        problem = context.checks.selector(text)
        if problem:
            refused += 1
            if not problem.startswith("does not compile"):
                problem = f"does not compile: {problem}"
            yield context.error(problem, *at, "cel")
            if refused == SELECTORS_REFUSED_MAX:
                yield context.error(not_checked(), "engines")
                return
            continue
        cost = context.checks.selector_cost(text)
        total += cost
        costs.append((_place(at), cost))
        if total > SELECTORS_COST_MAX:
            yield context.error(cost_problem(costs), "engines")
            return


def _place(at: Loc) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in at)
    return "".join(parts).lstrip(".")


def engine_name_is_a_label(engine: AnyEngine, context: RuleContext) -> Findings:
    """Require a DNS label, because engine names are parts of workload names."""
    if not is_dns_label(engine.name):
        yield context.error(
            "must be a DNS label: lower-case letters, digits, hyphen", "name"
        )


def roles_are_complete(engine: AnyEngine, context: RuleContext) -> Findings:
    """Allow one Standalone, or one Leader and one Worker."""
    members = engine.members
    roles = [member.role for member in members]
    if (
        roles == ["Standalone"]
        or sorted(roles) == ["Leader", "Worker"]
        or not 1 <= len(roles) <= MEMBERS_MAX
    ):
        return
    defaulted = [
        index
        for index, member in enumerate(members)
        if "role" not in member.model_fields_set
    ]
    shown: list[str] = list(roles)
    for index in defaulted:
        shown[index] += " (default)"
    text = (
        "must be one Standalone member, or one Leader and one Worker; "
        f"got {', '.join(shown)}"
    )
    if len(roles) == MEMBERS_MAX and len(defaulted) == 1:
        other = {"Worker": "Leader", "Leader": "Worker"}.get(roles[1 - defaulted[0]])
        if other:
            text += f"; set role: {other} on the {('first', 'second')[defaulted[0]]}"
    yield context.error(text, "members")


def some_member_requests_devices(engine: Engine, context: RuleContext) -> Findings:
    """Reject an engine without any request, because it cannot be placed."""
    if engine.members and all(
        member.node_selector is None for member in engine.members
    ):
        yield context.error(
            "no member requests devices; give at least one a nodeSelector", "members"
        )


def some_member_carries_requests(
    engine: ReplicaEngine, context: RuleContext
) -> Findings:
    """Reject an engine without any resolved request, because it has no device."""
    if engine.members and all(
        member.device_requests is None for member in engine.members
    ):
        yield context.error("at least one member must carry deviceRequests", "members")


def worker_block_is_for_workers(member: AnyMember, context: RuleContext) -> Findings:
    """Reject the worker block for roles without followers."""
    if member.worker is not None and member.role != "Worker":
        yield context.error(
            f"only a Worker member may set worker; this member is {member.role}",
            "worker",
        )


def probes_have_a_port(member: AnyMember, context: RuleContext) -> Findings:
    """Reject probes of followers, because they listen on no port."""
    if member.probes is not None and member.role == "Worker":
        yield context.error(NO_FOLLOWERS, "probes")


def toleration_says_what_it_tolerates(
    toleration: Toleration, context: RuleContext
) -> Findings:
    """Check that Equal has a key to compare and Exists has no value."""
    if toleration.operator == "Equal" and not toleration.key:
        default = "" if "operator" in toleration.model_fields_set else " (the default)"
        yield context.error(
            f"operator Equal{default} needs a key; use operator: Exists to match all"
        )
    if toleration.operator == "Exists" and toleration.value is not None:
        yield context.error("operator Exists takes no value", "value")


def request_name_fits_a_claim(request: DeviceRequest, context: RuleContext) -> Findings:
    """Warn of request names that a ResourceClaim rejects: it accepts only DNS labels."""
    if not is_dns_label(request.name):
        yield context.warning(
            "not a DNS label; a ResourceClaim refuses such a request name", "name"
        )


def request_has_one_source(request: ResolvedRequest, context: RuleContext) -> Findings:
    """Allow one grant for each resolved request: a claim or a device plugin's resource.

    Slots have none.
    """
    got = set_fields(request, "device_class_name", "resource_name")
    if len(got) > 1:
        yield context.error(
            f"set at most one of deviceClassName, resourceName; got {', '.join(got)}"
        )


def variables_have_one_value(
    container: EngineContainer, context: RuleContext
) -> Findings:
    """Warn of duplicate variables: the last one silently wins."""
    count = Counter(variable.name for variable in container.env or ())
    for name, times in count.items():
        if times > 1:
            yield context.warning(
                f"variable {name} is set {times} times; the last one wins", "env"
            )


def variable_has_one_source(variable: EnvVar, context: RuleContext) -> Findings:
    """Reject a variable with both a value and a source."""
    if variable.value and variable.value_from is not None:
        yield context.error("set either value or valueFrom, not both")


def source_is_one(source: EnvVarSource, context: RuleContext) -> Findings:
    """Require exactly one source."""
    got = set_fields(source, "secret_key_ref", "config_map_key_ref", "field_ref")
    if len(got) != 1:
        shown = ", ".join(got) or "none"
        yield context.error(
            f"set exactly one of secretKeyRef, configMapKeyRef, fieldRef; got {shown}"
        )


_ENGINE = (engine_name_is_a_label, roles_are_complete)

RULES: Rules = {
    ModelDeploymentSpec: (placement_can_be_carried, network_domain_has_an_effect),
    ReplicaTemplateSpec: (
        phases_fit_the_mode,
        gang_has_a_cache,
        selectors_can_be_used,
        evictions_can_happen,
    ),
    ModelReplicaSpec: (
        phases_fit_the_mode,
        selectors_can_be_used,
        evictions_can_happen,
    ),
    Engine: (*_ENGINE, some_member_requests_devices),
    ReplicaEngine: (*_ENGINE, some_member_carries_requests),
    Member: (worker_block_is_for_workers, probes_have_a_port),
    ReplicaMember: (worker_block_is_for_workers, probes_have_a_port),
    Toleration: (toleration_says_what_it_tolerates,),
    DeviceRequest: (request_name_fits_a_claim,),
    ResolvedRequest: (request_has_one_source,),
    EngineContainer: (variables_have_one_value,),
    EnvVar: (variable_has_one_source,),
    EnvVarSource: (source_is_one,),
}
