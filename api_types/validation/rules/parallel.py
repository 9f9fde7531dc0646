"""Rules for data parallelism and for what the endpoint picker follows, on a ModelDeployment and on a ModelReplica alike."""

from api_types.limits import EVENTS_PORT
from api_types.resources.model_deployment import Engine, Member, ReplicaTemplateSpec
from api_types.resources.model_replica import ModelReplicaSpec, ReplicaEngine, ReplicaMember
from api_types.resources.parts.probes import FIRST_RANK_ONLY
from api_types.validation.rules.rule import Findings, RuleContext, Rules
from api_types.validation.serving import events_port_problem, precise_problem, url_problem


def ranks_are_equal(spec: ReplicaTemplateSpec | ModelReplicaSpec, context: RuleContext) -> Findings:
    """Refuse engines with different numbers of ranks: they share one pool, whose ports are the same for all pods."""
    engines: tuple[Engine | ReplicaEngine, ...] = spec.engines
    sizes = [engine.data_parallel.size if engine.data_parallel else 1 for engine in engines]
    for index, size in enumerate(sizes):
        if size != sizes[0]:
            text = f"all engines of a replica share the ports of one pool; give each the same dataParallel.size, got {sizes[0]} and {size}"
            yield context.error(text, "engines", index, "dataParallel")
            return


def every_rank_is_asked(engine: Engine | ReplicaEngine, context: RuleContext) -> Findings:
    """Warn of liveness with several ranks: Kubernetes has one probe of a kind per container."""
    members: tuple[Member | ReplicaMember, ...] = engine.members
    for index, member in enumerate(members):
        if engine.data_parallel and engine.data_parallel.size > 1 and member.probes and member.probes.liveness:
            yield context.warning(FIRST_RANK_ONLY, "members", index, "probes", "liveness")


def precise_cache_can_be_followed(spec: ReplicaTemplateSpec | ModelReplicaSpec, context: RuleContext) -> Findings:
    """Require what Precise needs, and refuse it where nothing reads it."""
    wanted = spec.serving.prefix_cache if spec.serving else None
    if wanted is None:
        return
    path = ("serving", "prefixCache")
    given = {"modelName": wanted.model_name, "tokenizerUrl": wanted.tokenizer_url, "eventsPort": wanted.events_port}
    if wanted.mode != "Precise":
        for field in (field for field, value in given.items() if value is not None):
            yield context.error("is read with mode Precise alone; set the mode, or remove the field", *path, field)
        return
    for field in ("modelName", "tokenizerUrl"):
        if given[field] is None:
            yield context.error("is needed with mode Precise", *path, field)
    if wanted.tokenizer_url is not None and (problem := url_problem(wanted.tokenizer_url)):
        yield context.error(problem, *path, "tokenizerUrl")
    engines: tuple[Engine | ReplicaEngine, ...] = spec.engines
    ranks = max(engine.data_parallel.size if engine.data_parallel else 1 for engine in engines)
    if problem := precise_problem(disaggregated=spec.serving is not None and spec.serving.mode == "PrefillDecode", ranks=ranks):
        yield context.error(problem, *path)
    if problem := events_port_problem(wanted.events_port or EVENTS_PORT, ranks=ranks):
        yield context.error(problem, *path, "eventsPort")


RULES: Rules = {
    ReplicaTemplateSpec: (ranks_are_equal, precise_cache_can_be_followed),
    ModelReplicaSpec: (ranks_are_equal, precise_cache_can_be_followed),
    Engine: (every_rank_is_asked,),
    ReplicaEngine: (every_rank_is_asked,),
}
