"""Which volume claims the pods of replicas mount, and which one each replica shall mount next. Pure.

A new artifact reaches the replicas of one deployment one after the other, each when the one before it runs on the new volume: given to all
of them at once it would restart all of them at once.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from workflows.model_cache.state import ClusterStaging, User


class ClaimAssignment(NamedTuple):
    """A replica, by uid, and the claim that it shall mount."""

    uid: str
    claim: str


def claims_in_use(users: Mapping[str, User], cluster: str) -> frozenset[str]:
    """Name the claims that pods of replicas on a cluster mount, or may mount soon."""
    here = [user for user in users.values() if user.cluster == cluster]
    return frozenset(claim for user in here for claim in (*user.claims, user.assigned_claim) if claim)


def mounting_replicas(users: Iterable[User]) -> list[str]:
    """Name the replicas whose pods mount a claim of this cache."""
    return sorted(user.name for user in users if user.claims)


def assigned_replicas(users: Iterable[User]) -> list[str]:
    """Name the replicas that were told to mount a claim: their pods may mount it before they say so."""
    return sorted(user.name for user in users if user.cluster and user.assigned_claim)


def next_assignments(users: Mapping[str, User], stagings: Mapping[str, ClusterStaging], *, deleting: bool) -> list[ClaimAssignment]:
    """Decide to which replicas another claim is assigned; at most one of each deployment switches at a time."""
    switching = {user.deployment for user in users.values() if user.is_switching}
    found: list[ClaimAssignment] = []
    for uid, user in sorted(users.items(), key=lambda item: item[1].name):
        staging = stagings.get(user.cluster)
        published = staging.published if staging else None
        if published is None or published.claim == user.assigned_claim or (deleting and not user.claims):
            continue
        if user.claims and published.claim not in user.claims:
            if user.deployment in switching:
                continue
            switching.add(user.deployment)
        found.append(ClaimAssignment(uid, published.claim))
    return found
