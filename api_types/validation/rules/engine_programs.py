"""Rules for the flags and variables of engines, for ModelDeployment.

Replicas are not checked: they run what their deployment was admitted with.
"""

from api_types import labels
from api_types.engines.checks import engine_findings
from api_types.engines.facts import EngineFacts
from api_types.engines.profiles import CUSTOM_PROFILE, EngineProfile, profile_of
from api_types.engines.program import ContainerProgram
from api_types.limits import ENGINE_PORT
from api_types.resources.model_deployment import Engine, Member, ReplicaTemplateSpec
from api_types.resources.model_replica import ModelReplicaSpec, ReplicaEngine
from api_types.resources.parts.pod_template import EngineContainer
from api_types.validation.rules.rule import Findings, RuleContext, Rules
from api_types.validation.serving import port_problem

_CONTAINER = ("template", "spec", "containers", 0)


def engines_can_serve(spec: ReplicaTemplateSpec, context: RuleContext) -> Findings:
    """Reject engines that certainly never become Ready, and warn about probable ones."""
    annotations = context.manifest.metadata.annotations or {}
    only_warn = annotations.get(labels.ENGINE_CHECKS) == labels.ENGINE_CHECKS_WARN
    for index, engine in enumerate(spec.engines):
        at, server = _server(engine)
        if server is None:
            continue
        for finding in engine_findings(_facts(spec, engine, server)):
            member = 1 - at if finding.worker else at
            path = ("engines", index, "members", member, *_CONTAINER, finding.field)
            if finding.certain and not only_warn:
                advice = (
                    f"; the annotation {labels.ENGINE_CHECKS}: "
                    f"{labels.ENGINE_CHECKS_WARN} turns this check into a warning"
                )
                yield context.error(finding.text + advice, *path)
            else:
                yield context.warning(finding.text, *path)


def ports_are_equal(
    spec: ReplicaTemplateSpec | ModelReplicaSpec, context: RuleContext
) -> Findings:
    """Require the same ports of all engines of a pool."""
    engines: tuple[Engine | ReplicaEngine, ...] = spec.engines
    ports = [
        (
            engine.name,
            engine.phase,
            (engine.profile.port if engine.profile else None) or ENGINE_PORT,
            engine.data_parallel.ports if engine.data_parallel else 1,
        )
        for engine in engines
    ]
    if problem := port_problem(ports):
        yield context.error(problem, "engines")


def _server(engine: Engine) -> tuple[int, Member | None]:
    for at, member in enumerate(engine.members):
        if member.role != "Worker" and member.template.spec.containers:
            return at, member
    return 0, None


def program_of(container: EngineContainer) -> ContainerProgram:
    """Return the program of a container."""
    return ContainerProgram(
        image=container.image,
        command=container.command or (),
        args=container.args or (),
        variables={
            variable.name: None if variable.value_from else variable.value or ""
            for variable in container.env or ()
        },
    )


def profile_of_engine(engine: Engine) -> EngineProfile:
    """Return the profile of an engine with a serving member."""
    _, server = _server(engine)
    if server is None:
        return CUSTOM_PROFILE
    given = engine.profile.wire() if engine.profile else {}
    return profile_of(program_of(server.template.spec.containers[0]), given)


def _facts(spec: ReplicaTemplateSpec, engine: Engine, server: Member) -> EngineFacts:
    profile = profile_of_engine(engine)
    parallel = engine.data_parallel
    followers = [m for m in engine.members if m.role == "Worker"]
    of_all = [(_devices(member), _pods(member)) for member in engine.members]
    # A member without requests may still see the devices of its node.
    known = all(devices for devices, _ in of_all)
    first = ENGINE_PORT if engine.phase else profile.port
    return EngineFacts(
        profile=profile,
        server=program_of(server.template.spec.containers[0]),
        devices=_devices(server),
        all_devices=sum(d * pods for d, pods in of_all) if known else 0,
        pods=sum(pods for _, pods in of_all),
        ports=range(first, first + (parallel.ports if parallel else 1)),
        cache=spec.model_cache_ref is not None,
        adapters=bool(engine.adapters),
        drains_late=_drains_late(engine),
        worker=program_of(followers[0].template.spec.containers[0])
        if followers
        else None,
        load_balancing=(parallel.load_balancing if parallel else None) or "",
        ranks=parallel.size if parallel else 0,
        behind_sidecar=engine.phase == "Decode",
    )


def _drains_late(engine: Engine) -> bool:
    drain = engine.drain
    return bool(drain and drain.grace_seconds and not drain.pre_stop_seconds)


def _devices(member: Member) -> int:
    if member.node_selector is None:
        return 0
    return sum(request.count for request in member.node_selector.devices)


def _pods(member: Member) -> int:
    return member.worker_nodes if member.role == "Worker" else 1


RULES: Rules = {
    ReplicaTemplateSpec: (engines_can_serve, ports_are_equal),
    ModelReplicaSpec: (ports_are_equal,),
}
