"""The facts about a cluster: from its API server, from its watch and from the settings."""

from collections.abc import Mapping

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ApiResource, GroupVersionKind
from api_types.messages.cluster_work import ClusterFacts
from api_types.pins import apiversions
from api_types.settings import Settings

# The kind that Modelplane renders, for APIs that a cluster may serve without the kind.
_KINDS = dict.fromkeys(apiversions.MODEL_REWRITES, "InferenceModelRewrite")
# A server may return a string of any length.
_VERSION_LENGTH_MAX = 64


def discovered_facts(
    version: str,
    served: Mapping[GroupVersionKind, ApiResource],
    settings: Mapping[str, int | str],
) -> ClusterFacts:
    """Return the facts that do not depend on any object.

    `apis` lists only the served APIs of objects that Modelplane renders.
    """
    apis = {
        kind.api_version
        for kind in served
        if _KINDS.get(kind.api_version, kind.kind) == kind.kind
    }
    return ClusterFacts(
        kubernetes_version=version.removeprefix("v")[:_VERSION_LENGTH_MAX],
        dra_version=kinds.dra_version(served),
        apis=sorted(apiversions.RENDERED & apis),
        **settings,
    )


def facts_of_settings(settings: Settings, renderer: str) -> Mapping[str, int | str]:
    """Return the facts that come from the settings and the version of the renderer."""
    control = settings.control_cluster
    reference = (
        f"{control.namespace}/{control.name}/{control.key}" if control.name else ""
    )
    return {
        "withdraw_after_seconds": settings.cluster.unreachable_after,
        "drain_seconds": settings.teardown.drain_seconds,
        "cache_attempts_max": settings.cache.max_attempts,
        "cache_evict_grace_seconds": settings.cache.evict_grace,
        "gateway_scheme": settings.gateway.scheme,
        "renderer": renderer,
        "control_cluster": reference,
    }
