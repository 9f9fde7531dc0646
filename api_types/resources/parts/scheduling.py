"""The placement policy of one deployment: priority, spread, affinity."""

from typing import Annotated, Literal

from pydantic import Field

from api_types.limits import AFFINITY_TERMS_MAX, SPREADS_MAX
from api_types.resources.parts.base_types import (
    LabelSelector,
    MapKeys,
    Name63,
    Name253,
    NonEmpty,
    ResourceModel,
    Whole,
)

Profile = Literal["default", "balanced", "dense", "cheap", "near", "resilient"]


class TopologySpread(ResourceModel):
    """Spreads the replicas of a deployment evenly over the values of a cluster label."""

    topology_key: NonEmpty
    """Label of InferenceClusters whose values are the domains."""
    max_skew: Annotated[Whole, Field(ge=1)] = 1
    """The maximum difference between two domains."""
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "DoNotSchedule"
    """Whether it is required or preferred."""
    min_domains: Annotated[Whole, Field(ge=1)] | None = None
    """Domains that must exist before the lowest count may be above zero."""


class ReplicaAffinityTerm(ResourceModel):
    """Replicas of other deployments, and the domain that counts as the same place."""

    topology_key: NonEmpty | None = None
    """Label of InferenceClusters; equal values are one domain.

    Absent: one per cluster.
    """
    selector: LabelSelector
    """Labels of the other deployments."""
    namespaces: tuple[Name63, ...] | None = None
    """Their namespaces; absent means this deployment's own."""


class WeightedReplicaAffinityTerm(ReplicaAffinityTerm):
    """A preferred affinity with its weight."""

    weight: Annotated[Whole, Field(ge=1, le=100)]
    """Added to the score of a domain that meets the term."""


class Affinity(ResourceModel):
    """Replicas of other deployments for co-location or separation."""

    required: (
        Annotated[tuple[ReplicaAffinityTerm, ...], Field(max_length=AFFINITY_TERMS_MAX)]
        | None
    ) = None
    """Terms that a cluster must satisfy."""
    preferred: (
        Annotated[
            tuple[WeightedReplicaAffinityTerm, ...],
            Field(max_length=AFFINITY_TERMS_MAX),
        ]
        | None
    ) = None
    """Terms that order the remaining clusters."""


class Scheduling(ResourceModel):
    """Placement policy of one deployment."""

    profile: Profile | None = None
    """The order of clusters; absent means the fleet's profile."""
    priority_class_name: Name253 | None = None
    """Priority class of the fleet policy."""
    preemption_policy: Literal["Never", "LowerPriority"] = "Never"
    """Whether it may evict replicas of lower priority."""
    min_available: Annotated[Whole, Field(ge=0)] | None = None
    """Replicas that other deployments must not preempt."""
    topology_spread: (
        Annotated[
            tuple[TopologySpread, ...],
            Field(max_length=SPREADS_MAX),
            MapKeys(("topologyKey",), "constraint"),
        ]
        | None
    ) = None
    """Even spread over domains."""
    affinity: Affinity | None = None
    """Deployments to be co-located with."""
    anti_affinity: Affinity | None = None
    """Deployments to be separated from."""
    network_domain: Literal["Required", "Preferred", "Ignore"] = "Ignore"
    """Whether the engines of a PrefillDecode replica share one fast network."""
    gang_replicas: Annotated[Whole, Field(ge=1)] | None = None
    """Replicas that are placed together or not at all."""
    cache_required: Literal["Ready"] | None = None
    """Ready: only clusters on which the weights are already staged."""
