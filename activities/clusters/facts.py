"""The facts about a cluster: from its API server, from its watch and from the settings."""

from collections.abc import Mapping

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import Kind, Resource
from api_types.messages.cluster_work import ClusterFacts
from api_types.pins import apiversions
from api_types.settings import Settings

# Which kind of an API an object of ours is of, where the API may be served without it.
_KINDS = dict.fromkeys(apiversions.MODEL_REWRITES, "InferenceModelRewrite")
# A server may say anything.
_VERSION_LENGTH_MAX = 64


def discovered_facts(version: str, served: Mapping[Kind, Resource], settings: Mapping[str, int | str]) -> ClusterFacts:
    """Give the facts that do not depend on any object. Of what is served only the APIs are named that objects of ours are of."""
    return ClusterFacts(
        kubernetes_version=version.removeprefix("v")[:_VERSION_LENGTH_MAX],
        dra_version=kinds.dra_version(served),
        apis=sorted(
            apiversions.RENDERED.intersection(kind.api_version for kind in served if _KINDS.get(kind.api_version, kind.kind) == kind.kind)
        ),
        **settings,
    )


def facts_of_settings(settings: Settings, renderer: str) -> Mapping[str, int | str]:
    """Return the facts that come from the settings and the version of the renderer."""
    control = settings.control_cluster
    reference = f"{control.namespace}/{control.name}/{control.key}" if control.name else ""
    return {
        "withdraw_after_seconds": settings.cluster.unreachable_after,
        "drain_seconds": settings.teardown.drain_seconds,
        "cache_attempts_max": settings.cache.max_attempts,
        "cache_evict_grace_seconds": settings.cache.evict_grace,
        "gateway_scheme": settings.gateway.scheme,
        "renderer": renderer,
        "control_cluster": reference,
    }
