"""What is found out about a cluster: by an attempt to connect, and by the watch, which sees it change."""

from collections.abc import Mapping

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import Kind, Resource
from api_types.messages.cluster_work import ClusterFacts
from api_types.pins import apiversions

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
