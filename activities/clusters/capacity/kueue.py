"""Kueue: the devices that its ClusterQueues still admit.

`used` counts reserved quota: a workload has quota before its pods run. `free` is
nominal less used plus what the queue may borrow from its cohort. A queue that is
stopped or not Active admits nothing. A Workload is for one pod, which owns it, or for a
group of pods, which name it. An evicted Workload stays evicted until it has quota
again.
"""

from collections import defaultdict
from fractions import Fraction
from typing import Any

from activities.clusters.capacity.admission import (
    Pod,
    PodAdmission,
    condition_text,
    pods_with,
)
from activities.clusters.capacity.counts import amount, ceiling, floor
from activities.clusters.capacity.objects import (
    CapacityObjects,
    condition_with,
    is_true,
    milliseconds,
)
from api_types import labels
from api_types.messages.capacity import CapacityQueue

# Every pod requests these resources. Only devices limit how many replicas fit.
_ORDINARY = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
_POD_GROUP = "kueue.x-k8s.io/pod-group-name"
Share = tuple[str, str]


class _Quota:
    """The quota of one resource of one flavor in one ClusterQueue."""

    def __init__(self, spec: dict[str, Any], used: Fraction) -> None:
        self.nominal = amount(spec.get("nominalQuota", 0))
        self.used = used
        self.borrowing = (
            None
            if spec.get("borrowingLimit") is None
            else amount(spec["borrowingLimit"])
        )
        self.lending = (
            None if spec.get("lendingLimit") is None else amount(spec["lendingLimit"])
        )

    @property
    def to_lend(self) -> Fraction:
        """The amount that other queues of the cohort may borrow."""
        spare = max(Fraction(0), self.nominal - self.used)
        return spare if self.lending is None else min(spare, self.lending)


def queues(objects: CapacityObjects) -> list[CapacityQueue]:
    """Return the quotas of ClusterQueues, one per group of pools, sorted by name."""
    nodes_of = {
        flavor["metadata"]["name"]: (flavor["spec"].get("nodeLabels") or {}).get(
            labels.POOL
        )
        for flavor in objects.of("ResourceFlavor")
    }
    tenants: dict[str, set[str]] = defaultdict(set)
    for local in objects.of("LocalQueue"):
        tenants[local["spec"].get("clusterQueue", "")].add(local["metadata"]["name"])
    quotas = {
        queue["metadata"]["name"]: _quotas(queue)
        for queue in objects.of("ClusterQueue")
    }
    # Per cohort, the sum over its queues, because each may borrow from the others.
    lendable: dict[str, dict[Share, Fraction]] = defaultdict(
        lambda: defaultdict(Fraction)
    )
    for queue in objects.of("ClusterQueue"):
        if cohort := _cohort_of(queue):
            for share, quota in quotas[queue["metadata"]["name"]].items():
                lendable[cohort][share] += quota.to_lend
    own = {
        each["metadata"]["name"]: _cohort_quotas(each)
        for each in objects.of("Cohort")
        if each["metadata"]["name"]
    }
    found = []
    for queue in objects.of("ClusterQueue"):
        name, cohort = queue["metadata"]["name"], _cohort_of(queue)
        for share, quota in sorted(quotas[name].items()):
            lent = lendable[cohort][share] - quota.to_lend if cohort else Fraction(0)
            if cohort in own and share in own[cohort]:
                lent += own[cohort][share].to_lend
            reachable = lent if cohort else Fraction(0)
            names = sorted(tenants[name])
            found.append(
                _queue(
                    queue,
                    share[0],
                    quota,
                    pool=nodes_of.get(share[0]),
                    lent=reachable,
                    tenants=names,
                )
            )
    return found


def _cohort_of(queue: dict[str, Any]) -> str:
    """Return the cohort of a ClusterQueue. v1beta1 has another name for the field."""
    spec = queue["spec"]
    return str(spec.get("cohortName") or spec.get("cohort") or "")


def _queue(
    queue: dict[str, Any],
    flavor: str,
    quota: _Quota,
    *,
    pool: str | None,
    lent: Fraction,
    tenants: list[str],
) -> CapacityQueue:
    active = (
        is_true(queue, "Active") and queue["spec"].get("stopPolicy", "None") == "None"
    )
    borrowed = max(Fraction(0), quota.used - quota.nominal)
    borrowable = (
        lent
        if quota.borrowing is None
        else min(lent, max(Fraction(0), quota.borrowing - borrowed))
    )
    limit = -1 if quota.borrowing is None else floor(quota.nominal + quota.borrowing)
    free = (
        max(0, floor(quota.nominal - quota.used + borrowable))
        if quota.used <= quota.nominal
        else max(0, floor(borrowable))
    )
    return CapacityQueue(
        name=f"{queue['metadata']['name']}/{flavor}",
        tenants=tenants,
        pools=[pool] if pool else [],
        nominal=floor(quota.nominal),
        used=ceiling(quota.used),
        borrowed=ceiling(borrowed),
        borrowable=floor(borrowable),
        limit=limit,
        free=free if active else 0,
        pending=queue["status"].get("pendingWorkloads", 0),
        active=active,
    )


def _quotas(queue: dict[str, Any]) -> dict[Share, _Quota]:
    used: dict[Share, Fraction] = {}
    for flavor in queue["status"].get("flavorsReservation") or ():
        for resource in flavor.get("resources") or ():
            share = flavor["name"], resource["name"]
            used[share] = amount(resource.get("total", 0))
    return {
        share: _Quota(spec, used.get(share, Fraction(0)))
        for share, spec in _shares(queue)
    }


def _cohort_quotas(cohort: dict[str, Any]) -> dict[Share, _Quota]:
    return {share: _Quota(spec, Fraction(0)) for share, spec in _shares(cohort)}


def _shares(owner: dict[str, Any]) -> list[tuple[Share, dict[str, Any]]]:
    shares: list[tuple[Share, dict[str, Any]]] = []
    for group in owner["spec"].get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            shares += [
                ((flavor["name"], resource["name"]), resource)
                for resource in flavor.get("resources") or ()
                if resource["name"] not in _ORDINARY
            ]
    return shares


def pod_admissions(objects: CapacityObjects) -> dict[Pod, PodAdmission]:
    """Return the admission of Workloads that were evicted or wait for quota, by pod."""
    members: dict[Pod, list[Pod]] = defaultdict(list)
    for group, pod in pods_with(objects, "labels", _POD_GROUP):
        members[pod[0], group].append(pod)
    found: dict[Pod, PodAdmission] = {}
    for workload in objects.of("Workload"):
        admission = _admission_of(workload)
        if admission is None:
            continue
        namespace, name = (
            workload["metadata"].get("namespace", ""),
            workload["metadata"]["name"],
        )
        references = workload["metadata"].get("ownerReferences") or ()
        owners = [
            (namespace, owner["name"]) for owner in references if owner["kind"] == "Pod"
        ]
        found |= dict.fromkeys((*members[namespace, name], *owners), admission)
    return found


def _admission_of(workload: dict[str, Any]) -> PodAdmission | None:
    if is_true(workload, "Finished"):
        return None
    evicted = condition_with(workload, "Evicted")
    if evicted:
        return PodAdmission(
            condition_text(evicted), milliseconds(evicted.get("lastTransitionTime", ""))
        )
    waits = condition_with(workload, "QuotaReserved", "False")
    return PodAdmission(condition_text(waits)) if waits else None
