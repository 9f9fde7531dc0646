"""The adapters by name; a cluster selects one by annotation, and without one its declared capacity counts.

A new adapter is one module that maps objects, and one row here.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from activities.cluster_objects.kinds import LWS_NAME_LABEL
from activities.clusters.capacity import kai, kube, kueue
from activities.clusters.capacity.admission import Pod, PodAdmission, admission
from activities.clusters.capacity.objects import Objects
from api_types import labels
from api_types.limits import OBSERVED_MAX, REPLICAS_ON_CLUSTER_MAX
from api_types.messages.capacity import CapacityQueue, CapacitySnapshot
from api_types.pins import apiversions

VERSION = "1"
_DRA = f"{apiversions.DRA_GROUP}/"
_KUBE_KINDS = (("v1", "Node", labels.POOL), (_DRA, "ResourceSlice", ""), (_DRA, "ResourceClaim", ""))
_PODS = (("v1", "Pod", labels.SERVING), ("v1", "Pod", f"{LWS_NAME_LABEL},!{labels.SERVING}"))
_KUEUE = f"{apiversions.KUEUE_GROUP}/"
_KUEUE_KINDS = ("ClusterQueue", "LocalQueue", "ResourceFlavor", "Cohort", "Workload")


def _bounded(queue: CapacityQueue) -> CapacityQueue:
    return queue.model_copy(update={"tenants": queue.tenants[:OBSERVED_MAX], "pools": queue.pools[:OBSERVED_MAX]})


def _no_queues(_: Objects) -> list[CapacityQueue]:
    return []


def _no_pod_admissions(_: Objects) -> dict[Pod, PodAdmission]:
    return {}


@dataclass(frozen=True)
class Adapter:
    """What an adapter reads ((apiVersion, kind, label selector)), and how it maps queues and the admission of pods."""

    name: str
    kinds: tuple[tuple[str, str, str], ...] = (*_KUBE_KINDS, *_PODS)
    queues: Callable[[Objects], list[CapacityQueue]] = field(default=_no_queues)
    pod_admissions: Callable[[Objects], dict[Pod, PodAdmission]] = field(default=_no_pod_admissions)

    def snapshot(
        self,
        cluster: str,
        objects: Objects,
        observed_at: int,
        toleration_keys: Iterable[str] = (),
        tolerations: kube.Tolerations = kube.NO_TOLERATIONS,
    ) -> CapacitySnapshot:
        """Map the objects; `observed_at` in ms. Raises ValueError naming an invalid quantity.

        `toleration_keys` as configured, `tolerations` as the classes of the pools grant them to engine pods.
        """
        return CapacitySnapshot(
            cluster=cluster,
            source=self.name,
            adapter_version=VERSION,
            observed_at=observed_at,
            generation=objects.changes,
            # A cluster says how many there are, and what it says is sent to the scheduler.
            pools=kube.pools(objects, toleration_keys, tolerations)[:OBSERVED_MAX],
            queues=[_bounded(queue) for queue in self.queues(objects)[:OBSERVED_MAX]],
            admission=admission(objects, self.pod_admissions(objects))[:REPLICAS_ON_CLUSTER_MAX],
        )


ADAPTERS: Mapping[str, Adapter] = {
    adapter.name: adapter
    for adapter in (
        Adapter("kube"),
        Adapter(
            "kueue",
            (*_KUBE_KINDS, *_PODS, *((_KUEUE, kind, "") for kind in _KUEUE_KINDS)),
            kueue.queues,
            kueue.pod_admissions,
        ),
        Adapter(
            "kai",
            (*_KUBE_KINDS, *_PODS, ("scheduling.run.ai/v2", "Queue", ""), ("scheduling.run.ai/v2alpha2", "PodGroup", "")),
            kai.queues,
            kai.pod_admissions,
        ),
    )
}
