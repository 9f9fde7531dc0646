"""Rules for data parallelism and prefix caching, for ModelDeployment and ModelReplica."""

from api_types.limits import EVENTS_PORT
from api_types.resources.model_deployment import Engine, Member, ReplicaTemplateSpec
from api_types.resources.model_replica import (
    ModelReplicaSpec,
    ReplicaEngine,
    ReplicaMember,
)
from api_types.resources.parts.probes import FIRST_RANK_ONLY
from api_types.validation.rules.rule import Findings, RuleContext, Rules
from api_types.validation.serving import (
    events_port_problem,
    precise_problem,
    url_problem,
)


def _ranks(engine: Engine | ReplicaEngine) -> int:
    return engine.data_parallel.ports if engine.data_parallel else 1


def ranks_are_equal(
    spec: ReplicaTemplateSpec | ModelReplicaSpec, context: RuleContext
) -> Findings:
    """Reject engines with different numbers of ranks.

    They share one pool, which has the same ports for all pods.
    """
    engines: tuple[Engine | ReplicaEngine, ...] = spec.engines
    sizes = [_ranks(engine) for engine in engines]
    for index, size in enumerate(sizes):
        if size != sizes[0]:
            text = (
                "all engines of a replica share the ports of one pool; give each the "
                f"same dataParallel.size and loadBalancing, got {sizes[0]} and {size} "
                "ports"
            )
            yield context.error(text, "engines", index, "dataParallel")
            return


def every_rank_is_asked(
    engine: Engine | ReplicaEngine, context: RuleContext
) -> Findings:
    """Warn of a liveness check with several ranks.

    Kubernetes has one liveness probe per container.
    """
    members: tuple[Member | ReplicaMember, ...] = engine.members
    for index, member in enumerate(members):
        if _ranks(engine) > 1 and member.probes and member.probes.liveness:
            yield context.warning(
                FIRST_RANK_ONLY, "members", index, "probes", "liveness"
            )


def precise_cache_can_be_followed(
    spec: ReplicaTemplateSpec | ModelReplicaSpec, context: RuleContext
) -> Findings:
    """Require the fields of mode Precise, and reject them in other modes."""
    wanted = spec.serving.prefix_cache if spec.serving else None
    if wanted is None:
        return
    path = ("serving", "prefixCache")
    given = {
        "modelName": wanted.model_name,
        "tokenizerUrl": wanted.tokenizer_url,
        "eventsPort": wanted.events_port,
    }
    if wanted.mode != "Precise":
        for field, value in given.items():
            if value is not None:
                yield context.error(
                    "is read only with mode Precise; set the mode, or remove the field",
                    *path,
                    field,
                )
        return
    for field in ("modelName", "tokenizerUrl"):
        if given[field] is None:
            yield context.error("is required with mode Precise", *path, field)
    if wanted.tokenizer_url is not None:
        problem = url_problem(wanted.tokenizer_url)
        if problem:
            yield context.error(problem, *path, "tokenizerUrl")
    engines: tuple[Engine | ReplicaEngine, ...] = spec.engines
    ranks = max(map(_ranks, engines))
    problem = precise_problem(
        disaggregated=spec.serving_mode == "PrefillDecode", ranks=ranks
    )
    if problem:
        yield context.error(problem, *path)
    problem = events_port_problem(wanted.events_port or EVENTS_PORT, ranks=ranks)
    if problem:
        yield context.error(problem, *path, "eventsPort")


RULES: Rules = {
    ReplicaTemplateSpec: (ranks_are_equal, precise_cache_can_be_followed),
    ModelReplicaSpec: (ranks_are_equal, precise_cache_can_be_followed),
    Engine: (every_rank_is_asked,),
    ReplicaEngine: (every_rank_is_asked,),
}
