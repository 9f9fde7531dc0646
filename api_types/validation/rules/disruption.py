"""Rules for stopping engines and for evictions."""

from api_types.resources.model_deployment import ReplicaTemplateSpec
from api_types.resources.model_replica import ModelReplicaSpec
from api_types.resources.parts.disruption import EngineDrain, copies_kept
from api_types.validation.rules.rule import Findings, RuleContext, Rules


def grace_outlasts_the_sleep(drain: EngineDrain, context: RuleContext) -> Findings:
    """Require time after the sleep, which counts against the grace period.

    An engine without any time left is killed.
    """
    sleep, grace = drain.pre_stop_seconds or 0, drain.grace_seconds
    if grace is not None and grace <= sleep:
        yield context.error(
            f"must be more than preStopSeconds ({sleep}), got {grace}: both count "
            "from the deletion, and the engine stops in the time between them; "
            "raise it, or lower preStopSeconds",
            "graceSeconds",
        )


def evictions_can_happen(
    spec: ReplicaTemplateSpec | ModelReplicaSpec, context: RuleContext
) -> Findings:
    """Reject a budget that no engine's copies can meet.

    Warn of a budget that blocks every drain of an engine's node.
    """
    wanted = spec.disruption.min_available if spec.disruption else None
    if wanted is None:
        return
    for engine in spec.engines:
        kept = copies_kept(wanted, engine.copies)
        copies = f"{engine.copies} {'copy' if engine.copies == 1 else 'copies'}"
        if kept > engine.copies:
            yield context.error(
                f"must be at most the copies of every engine: engine {engine.name} "
                f"has {copies}, got {wanted}; lower it or raise copies",
                "disruption",
                "minAvailable",
            )
        elif kept == engine.copies:
            yield context.warning(
                f"engine {engine.name} has {copies} and keeps all of them, so "
                "kubectl drain waits on every node with one; raise copies or "
                "lower it, or move replicas off the cluster first with modelplane "
                "drain",
                "disruption",
                "minAvailable",
            )


RULES: Rules = {
    EngineDrain: (grace_outlasts_the_sleep,),
}
