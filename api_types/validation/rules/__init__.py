"""The rules that look at more than one field, or at more than a type and a bound.

They run after structure and defaults, at admission only: a stored object is read back without them, because a rule of today must not
make an object of yesterday unreadable. Each rule sees one object of the manifest, with its location, and says what it finds.
"""

from api_types.validation.rules import caches, clusters, devices, engines, metadata, routing
from api_types.validation.rules.rule import Rules

RULES: Rules = {
    **metadata.RULES,
    **devices.RULES,
    **clusters.RULES,
    **engines.RULES,
    **routing.RULES,
    **caches.RULES,
}
