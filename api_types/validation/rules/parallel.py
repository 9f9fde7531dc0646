"""Rules for data parallelism, on a ModelDeployment and on a ModelReplica alike."""

from api_types.resources.model_deployment import Engine, ReplicaTemplateSpec
from api_types.resources.model_replica import ModelReplicaSpec, ReplicaEngine
from api_types.validation.rules.rule import Findings, RuleContext, Rules


def ranks_are_equal(spec: ReplicaTemplateSpec | ModelReplicaSpec, context: RuleContext) -> Findings:
    """Refuse engines with different numbers of ranks: they share one pool, whose ports are the same for all pods."""
    engines: tuple[Engine | ReplicaEngine, ...] = spec.engines
    sizes = [engine.data_parallel.size if engine.data_parallel else 1 for engine in engines]
    for index, size in enumerate(sizes):
        if size != sizes[0]:
            text = f"all engines of a replica share the ports of one pool; give each the same dataParallel.size, got {sizes[0]} and {size}"
            yield context.error(text, "engines", index, "dataParallel")
            return


RULES: Rules = {
    ReplicaTemplateSpec: (ranks_are_equal,),
    ModelReplicaSpec: (ranks_are_equal,),
}
