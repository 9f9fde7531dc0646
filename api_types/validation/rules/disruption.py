"""Rules for stopping engines and for what evictions must leave of them."""

from api_types.resources.model_deployment import ReplicaTemplateSpec
from api_types.resources.model_replica import ModelReplicaSpec
from api_types.resources.parts.disruption import EngineDrain, copies_kept
from api_types.validation.rules.rule import Findings, RuleContext, Rules


def grace_outlasts_the_sleep(drain: EngineDrain, context: RuleContext) -> Findings:
    """Require time after the sleep: it counts against the grace period, and an engine that gets none of it is killed."""
    sleep, grace = drain.pre_stop_seconds or 0, drain.grace_seconds
    if grace is not None and grace <= sleep:
        yield context.error(
            f"must be more than preStopSeconds ({sleep}), got {grace}: it is counted from the deletion too, and what is left of it after "
            "the sleep is the time in which the engine stops; raise it, or lower preStopSeconds",
            "graceSeconds",
        )


def evictions_can_happen(spec: ReplicaTemplateSpec | ModelReplicaSpec, context: RuleContext) -> Findings:
    """Reject a budget that no engine's copies can meet, and warn of one under which no node of an engine can be drained."""
    wanted = spec.disruption.min_available if spec.disruption else None
    if wanted is None:
        return
    for engine in spec.engines:
        kept = copies_kept(wanted, engine.copies)
        copies = f"{engine.copies} {'copy' if engine.copies == 1 else 'copies'}"
        if kept > engine.copies:
            yield context.error(
                f"must be at most the copies of every engine: engine {engine.name} has {copies}, got {wanted}; lower it or raise copies",
                "disruption",
                "minAvailable",
            )
        elif kept == engine.copies:
            yield context.warning(
                f"engine {engine.name} has {copies} and keeps all of them, so kubectl drain waits on every node with one; "
                "raise copies or lower it, or move replicas off the cluster first with modelplane drain",
                "disruption",
                "minAvailable",
            )


RULES: Rules = {
    EngineDrain: (grace_outlasts_the_sleep,),
}
