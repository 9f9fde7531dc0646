"""Rules over more than one field, or over more than a type and a bound.

They run after structure and defaults, at admission only: a stored object is read back without them, because a new rule must not make a
stored object unreadable. Each rule gets one object of the manifest with its location, and yields its findings.
"""

from api_types.validation.rules import (
    adapters,
    caches,
    clusters,
    devices,
    disruption,
    engines,
    hydration,
    metadata,
    parallel,
    pod_policy,
    references,
    routing,
    topology,
)
from api_types.validation.rules.rule import Rules

_GROUPS: tuple[Rules, ...] = (
    metadata.RULES,
    devices.RULES,
    pod_policy.RULES,
    clusters.RULES,
    engines.RULES,
    disruption.RULES,
    topology.RULES,
    adapters.RULES,
    parallel.RULES,
    routing.RULES,
    caches.RULES,
    hydration.RULES,
    references.RULES,
)
RULES: Rules = {kind: tuple(rule for group in _GROUPS for rule in group.get(kind, ())) for group in _GROUPS for kind in group}
