"""The adapters by name; a cluster chooses one by annotation, and without one its declared capacity counts.

A new adapter is one module that maps objects, and one row here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from activities.cluster_objects.kinds import LWS_NAME_LABEL
from activities.clusters.capacity import kai, kube, kueue
from activities.clusters.capacity.admission import Pod, Word, admission
from activities.clusters.capacity.objects import Objects
from api_types import labels
from api_types.messages.capacity import CapacityQueue, CapacitySnapshot

VERSION = "1"
_KUBE_KINDS = (("v1", "Node", labels.POOL), ("resource.k8s.io/", "ResourceSlice", ""), ("resource.k8s.io/", "ResourceClaim", ""))
_PODS = (("v1", "Pod", labels.SERVING), ("v1", "Pod", f"{LWS_NAME_LABEL},!{labels.SERVING}"))
_KUEUE = "kueue.x-k8s.io/v1beta2"
_KUEUE_KINDS = ("ClusterQueue", "LocalQueue", "ResourceFlavor", "Cohort", "Workload")


def _nothing(_: Objects) -> list[CapacityQueue]:
    return []


def _no_words(_: Objects) -> dict[Pod, Word]:
    return {}


@dataclass(frozen=True)
class Adapter:
    """What an adapter reads ((apiVersion, kind, label selector)), and how it finds queues and what an admission says of pods."""

    name: str
    kinds: tuple[tuple[str, str, str], ...] = (*_KUBE_KINDS, *_PODS)
    queues: Callable[[Objects], list[CapacityQueue]] = field(default=_nothing)
    words: Callable[[Objects], dict[Pod, Word]] = field(default=_no_words)

    def snapshot(self, cluster: str, objects: Objects, observed_at: int) -> CapacitySnapshot:
        """Map the objects; `observed_at` in ms. Raises ValueError naming an amount that cannot be read."""
        return CapacitySnapshot(
            cluster=cluster,
            source=self.name,
            adapter_version=VERSION,
            observed_at=observed_at,
            generation=objects.changes,
            pools=kube.pools(objects),
            queues=self.queues(objects),
            admission=admission(objects, self.words(objects)),
        )


ADAPTERS: Mapping[str, Adapter] = {
    adapter.name: adapter
    for adapter in (
        Adapter("kube"),
        Adapter(
            "kueue",
            (*_KUBE_KINDS, *_PODS, *((_KUEUE, kind, "") for kind in _KUEUE_KINDS)),
            kueue.queues,
            kueue.words,
        ),
        Adapter(
            "kai",
            (*_KUBE_KINDS, *_PODS, ("scheduling.run.ai/v2", "Queue", ""), ("scheduling.run.ai/v2alpha2", "PodGroup", "")),
            kai.queues,
            kai.words,
        ),
    )
}
