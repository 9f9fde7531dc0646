"""Rules for the LoRA adapters of an engine, for ModelDeployment and ModelReplica."""

from api_types.limits import ADAPTER_CACHES_MAX
from api_types.resources.model_deployment import Engine, ReplicaTemplateSpec
from api_types.resources.model_replica import ModelReplicaSpec, ReplicaEngine
from api_types.resources.parts.adapters import Adapter
from api_types.validation.rules.metadata import is_dns_label, is_dns_subdomain
from api_types.validation.rules.rule import Findings, RuleContext, Rules
from api_types.validation.serving import (
    EngineAdapters,
    adapter_cache_problems,
    missing_adapters,
    model_name_problems,
)


def adapter_can_be_found(adapter: Adapter, context: RuleContext) -> Findings:
    """Require a DNS label as the name and a valid name for the cache.

    The adapter's name is part of the name of a volume and of a path.
    """
    if not is_dns_label(adapter.name):
        yield context.error(
            "must be a DNS label: lower-case letters, digits, hyphen", "name"
        )
    if not is_dns_subdomain(adapter.model_cache_ref.name):
        text = (
            "not the name of a ModelCache; use lower-case letters, digits, '-' "
            "and '.', without a namespace: the ModelCache is in the deployment's "
            "namespace"
        )
        yield context.error(text, "modelCacheRef", "name")


def adapters_have_caches_of_their_own(
    spec: ReplicaTemplateSpec | ModelReplicaSpec, context: RuleContext
) -> Findings:
    """Reject the model's cache as an adapter, and too many caches for one replica."""
    engines: tuple[Engine | ReplicaEngine, ...] = spec.engines
    model = spec.model_cache_ref.name if spec.model_cache_ref else ""
    caches = set()
    for index, engine in enumerate(engines):
        for at, adapter in enumerate(engine.adapters or ()):
            caches.add(adapter.model_cache_ref.name)
            if adapter.model_cache_ref.name == model:
                text = (
                    f'"{model}" is the cache of the model, mounted at /mnt/models; '
                    "give the adapter its own ModelCache"
                )
                yield context.error(
                    text, "engines", index, "adapters", at, "modelCacheRef", "name"
                )
    if len(caches) > ADAPTER_CACHES_MAX:
        text = (
            f"adapters may use at most {ADAPTER_CACHES_MAX} ModelCaches together, "
            f"got {len(caches)}; split the deployment"
        )
        yield context.error(text, "engines")


def model_names_are_clear(
    spec: ReplicaTemplateSpec | ModelReplicaSpec, context: RuleContext
) -> Findings:
    """Reject public names that are not usable in requests or refer to two adapters."""
    engines: tuple[Engine | ReplicaEngine, ...] = spec.engines
    places: list[tuple[int, int]] = []
    named: list[tuple[str, tuple[str, ...]]] = []
    for index, engine in enumerate(engines):
        for at, adapter in enumerate(engine.adapters or ()):
            places.append((index, at))
            named.append((adapter.name, adapter.model_names or ()))
    for problem in model_name_problems(named):
        index, at = places[problem.adapter]
        yield context.error(
            problem.text, "engines", index, "adapters", at, "modelNames", problem.at
        )


def adapters_are_those_of_all_engines(
    spec: ReplicaTemplateSpec | ModelReplicaSpec, context: RuleContext
) -> Findings:
    """Reject a name for two different adapters, and warn of engines without an adapter.

    Requests may reach any engine.
    """
    engines: tuple[Engine | ReplicaEngine, ...] = spec.engines
    adapted = []
    for engine in engines:
        pairs = [
            (each.name, each.model_cache_ref.name) for each in engine.adapters or ()
        ]
        adapted.append(EngineAdapters(engine.name, pairs))
    for problem in adapter_cache_problems(adapted):
        yield context.error(
            problem.text,
            "engines",
            problem.engine,
            "adapters",
            problem.at,
            "modelCacheRef",
            "name",
        )
    for index, text in missing_adapters(adapted):
        yield context.warning(text, "engines", index)


_OF_A_REPLICA = (
    adapters_have_caches_of_their_own,
    model_names_are_clear,
    adapters_are_those_of_all_engines,
)

RULES: Rules = {
    ReplicaTemplateSpec: _OF_A_REPLICA,
    ModelReplicaSpec: _OF_A_REPLICA,
    Adapter: (adapter_can_be_found,),
}
