"""Decide which volume claim each replica mounts next.

The replicas of a deployment switch to a new artifact one after the other, because a
switch restarts the replica. Each replica waits until the previous one runs on the new
volume. All functions are pure.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from workflows.model_cache.state import CacheUser, ClusterStaging


class ClaimAssignment(NamedTuple):
    """A replica uid and the claim that the replica shall mount."""

    uid: str
    claim: str


def claims_in_use(users: Mapping[str, CacheUser], cluster: str) -> frozenset[str]:
    """Return the claims that pods on a cluster mount or may mount soon."""
    claims: set[str] = set()
    for user in users.values():
        if user.cluster == cluster:
            claims |= {*user.claims, user.assigned_claim}
    return frozenset(filter(None, claims))


def mounting_replicas(users: Iterable[CacheUser]) -> list[str]:
    """Return the replicas whose pods mount a claim of this cache."""
    return sorted(user.name for user in users if user.claims)


def assigned_replicas(users: Iterable[CacheUser]) -> list[str]:
    """Return the replicas with an assigned claim.

    Their pods may mount the claim before the replicas report that.
    """
    return sorted(user.name for user in users if user.cluster and user.assigned_claim)


def next_assignments(
    users: Mapping[str, CacheUser],
    stagings: Mapping[str, ClusterStaging],
    *,
    deleting: bool,
) -> list[ClaimAssignment]:
    """Return the replicas that get another claim.

    At most one replica of each deployment switches at a time.
    """
    switching = {user.deployment for user in users.values() if user.is_switching}
    found: list[ClaimAssignment] = []
    for uid, user in sorted(users.items(), key=lambda item: item[1].name):
        staging = stagings.get(user.cluster)
        published = staging.published if staging else None
        if (
            published is None
            or published.claim == user.assigned_claim
            or (deleting and not user.claims)
        ):
            continue
        if user.claims and published.claim not in user.claims:
            if user.deployment in switching:
                continue
            switching.add(user.deployment)
        found.append(ClaimAssignment(uid, published.claim))
    return found
