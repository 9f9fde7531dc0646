"""Rules over several fields, or beyond a type and a bound.

They run after structure and defaults, and only at admission: stored objects are loaded
without them, because a new rule must not make a stored object unreadable. Each rule
gets one object of the manifest with its location, and yields its findings.
"""

from api_types.resources.parts.base_types import ResourceModel
from api_types.validation.rules import (
    adapters,
    caches,
    clusters,
    devices,
    disruption,
    engine_programs,
    engines,
    hydration,
    metadata,
    parallel,
    pod_policy,
    references,
    routing,
    topology,
)
from api_types.validation.rules.rule import Rule, Rules

_GROUPS: tuple[Rules, ...] = (
    metadata.RULES,
    devices.RULES,
    pod_policy.RULES,
    clusters.RULES,
    engines.RULES,
    engine_programs.RULES,
    disruption.RULES,
    topology.RULES,
    adapters.RULES,
    parallel.RULES,
    routing.RULES,
    caches.RULES,
    hydration.RULES,
    references.RULES,
)


def _merged() -> Rules:
    merged: dict[type[ResourceModel], tuple[Rule, ...]] = {}
    for group in _GROUPS:
        for model, rules in group.items():
            merged[model] = (*merged.get(model, ()), *rules)
    return merged


RULES: Rules = _merged()
