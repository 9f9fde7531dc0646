"""The capacity adapters by name.

An annotation of a cluster selects one. Without the annotation the cluster's declared
capacity is used.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from activities.cluster_objects.kinds import LWS_NAME_LABEL
from activities.clusters.capacity import kai, kube, kueue
from activities.clusters.capacity.admission import Pod, PodAdmission, admission
from activities.clusters.capacity.objects import CapacityObjects
from api_types import labels
from api_types.limits import OBSERVED_MAX, REPLICAS_ON_CLUSTER_MAX
from api_types.messages.capacity import CapacityQueue, CapacitySnapshot
from api_types.pins import apiversions

VERSION = "1"
_DRA = f"{apiversions.DRA_GROUP}/"
_KUBE_KINDS = (
    ("v1", "Node", labels.POOL),
    (_DRA, "ResourceSlice", ""),
    (_DRA, "ResourceClaim", ""),
)
_PODS = (
    ("v1", "Pod", labels.SERVING),
    ("v1", "Pod", f"{LWS_NAME_LABEL},!{labels.SERVING}"),
)
_KUEUE = f"{apiversions.KUEUE_GROUP}/"
_KUEUE_KINDS = ("ClusterQueue", "LocalQueue", "ResourceFlavor", "Cohort", "Workload")


def _bounded(queue: CapacityQueue) -> CapacityQueue:
    return queue.model_copy(
        update={
            "tenants": queue.tenants[:OBSERVED_MAX],
            "pools": queue.pools[:OBSERVED_MAX],
        }
    )


def _no_queues(_: CapacityObjects) -> list[CapacityQueue]:
    return []


def _no_pod_admissions(_: CapacityObjects) -> dict[Pod, PodAdmission]:
    return {}


@dataclass(frozen=True)
class CapacityAdapter:
    """A mapping from objects to capacity.

    `kinds` lists the objects that it reads, as (apiVersion, kind, label selector).
    `queues` and `pod_admissions` return the queues and the admission of pods.
    """

    name: str
    kinds: tuple[tuple[str, str, str], ...] = (*_KUBE_KINDS, *_PODS)
    queues: Callable[[CapacityObjects], list[CapacityQueue]] = field(default=_no_queues)
    pod_admissions: Callable[[CapacityObjects], dict[Pod, PodAdmission]] = field(
        default=_no_pod_admissions
    )

    def snapshot(
        self,
        cluster: str,
        objects: CapacityObjects,
        observed_at: int,
        toleration_keys: Iterable[str] = (),
        tolerations: kube.Tolerations = kube.NO_TOLERATIONS,
    ) -> CapacitySnapshot:
        """Compute the capacity from the objects.

        `observed_at` is in ms. `toleration_keys` are keys of taints that engine pods
        tolerate because of the settings. `tolerations` are those that the classes of
        the pools grant to engine pods. Raises ValueError for an invalid quantity.
        """
        return CapacitySnapshot(
            cluster=cluster,
            source=self.name,
            adapter_version=VERSION,
            observed_at=observed_at,
            generation=objects.changes,
            # A cluster controls the number of entries, and they are sent to the
            # scheduler.
            pools=kube.pools(objects, toleration_keys, tolerations)[:OBSERVED_MAX],
            queues=[_bounded(queue) for queue in self.queues(objects)[:OBSERVED_MAX]],
            admission=admission(objects, self.pod_admissions(objects))[
                :REPLICAS_ON_CLUSTER_MAX
            ],
        )


ADAPTERS: Mapping[str, CapacityAdapter] = {
    adapter.name: adapter
    for adapter in (
        CapacityAdapter("kube"),
        CapacityAdapter(
            "kueue",
            (*_KUBE_KINDS, *_PODS, *((_KUEUE, kind, "") for kind in _KUEUE_KINDS)),
            kueue.queues,
            kueue.pod_admissions,
        ),
        CapacityAdapter(
            "kai",
            (
                *_KUBE_KINDS,
                *_PODS,
                ("scheduling.run.ai/v2", "Queue", ""),
                ("scheduling.run.ai/v2alpha2", "PodGroup", ""),
            ),
            kai.queues,
            kai.pod_admissions,
        ),
    )
}
