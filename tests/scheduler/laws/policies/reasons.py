"""Why a replica is not placed: the first failing filter of each cluster, counted once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tests.scheduler.laws.policies.matching import first_failing
from tests.scheduler.laws.policies.steps import Step

Found = Iterator[str]
# The reason of a gang that does not fit where one replica would.
OF_A_GANG = ("InsufficientNodes", "Policy")


def expected(step: Step, cluster: str) -> Sequence[str]:
    """Return the correct reasons for a cluster: one, unless only the gang as a whole
    does not fit.
    """
    filler = step.filler
    static = first_failing(
        step.view, step.after.clusters[cluster], filler.matches[cluster]
    )
    if static:
        return (static,)
    if next(filler.arrangements(step.after, cluster, rules=False), None) is None:
        # During an update the larger charge counts here.
        return OF_A_GANG if step.updated else ("InsufficientNodes",)
    return OF_A_GANG if step.view.policy.gang_replicas > 1 else ("Policy",)


def every_cluster_has_the_first_filter_that_it_fails(step: Step) -> Found:
    if not step.decision.shortfall or step.is_held:
        return
    right = {name: expected(step, name) for name in step.after.clusters}
    for name, detail in step.clusters.items():
        if detail.reason not in right[name]:
            yield f"{name} has {detail.reason} ({detail.detail}), not {'/'.join(right[name])}"
    diagnosis = step.decision.diagnosis
    counted = Counter[str]()
    for group in diagnosis.groups:
        counted[group.code] += group.count
    if sum(counted.values()) != len(right) or diagnosis.clusters != len(right):
        yield (
            f"{sum(counted.values())} of {len(right)} clusters have a reason: "
            f"{step.decision.message}"
        )
    certain = Counter(codes[0] for codes in right.values() if len(codes) == 1)
    if certain - counted:
        yield f"{dict(counted)} counted, {dict(certain)} expected: {step.decision.message}"
    if step.clusters and counted != Counter(
        detail.reason for detail in step.clusters.values()
    ):
        yield (
            f"{dict(counted)} counted, "
            f"{dict(Counter(detail.reason for detail in step.clusters.values()))} "
            "explained"
        )


def a_cluster_that_fits_has_no_reason(step: Step) -> Found:
    """Without a shortfall the explanation is about one more replica: a cluster that
    fits it has no reason.
    """
    if step.decision.shortfall or step.is_held or step.surges or not step.clusters:
        return
    for name, detail in step.clusters.items():
        if step.filler.takes_one(name) and detail.reason:
            yield f"{name} takes one more and has {detail.reason} ({detail.detail})"
        static = first_failing(
            step.view, step.after.clusters[name], step.filler.matches[name]
        )
        if static and detail.reason != static:
            yield f"{name} has {detail.reason} ({detail.detail}), not {static}"


REASONS = (
    every_cluster_has_the_first_filter_that_it_fails,
    a_cluster_that_fits_has_no_reason,
)
