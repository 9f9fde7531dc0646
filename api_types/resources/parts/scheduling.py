"""How the scheduler weighs one deployment against others, and where its replicas like to be."""

from typing import Annotated, Literal

from pydantic import Field

from api_types.resources.parts.base_types import LabelSelector, MapKeys, Name63, Name253, NonEmpty, Shape, Whole

Profile = Literal["default", "balanced", "dense", "cheap", "near", "resilient"]


class TopologySpread(Shape):
    """Keeps the replicas of a deployment evenly over the values of a cluster label."""

    topology_key: NonEmpty
    """Label of InferenceClusters whose values are the domains."""
    max_skew: Annotated[Whole, Field(ge=1)] = 1
    """The most by which two domains may differ."""
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "DoNotSchedule"
    """Whether it is a rule or a wish."""
    min_domains: Annotated[Whole, Field(ge=1)] | None = None
    """Domains that must exist before the lowest count may be above zero."""


class AffinityTerm(Shape):
    """Replicas of other deployments, and the domain in which they count as near."""

    topology_key: NonEmpty | None = None
    """Label of InferenceClusters; equal values are one domain. Absent makes each cluster its own domain."""
    selector: LabelSelector
    """Labels of the deployments meant."""
    namespaces: tuple[Name63, ...] | None = None
    """Their namespaces; absent means this deployment's own."""


class WeightedAffinityTerm(AffinityTerm):
    """A wish, and how strong it is."""

    weight: Annotated[Whole, Field(ge=1, le=100)]
    """Added to the score of a domain that meets the term."""


class Affinity(Shape):
    """Which other replicas to be near to, or to stay away from."""

    required: tuple[AffinityTerm, ...] | None = None
    """Rules: a cluster that breaks one is not used."""
    preferred: tuple[WeightedAffinityTerm, ...] | None = None
    """Wishes: they order the clusters that remain."""


class Scheduling(Shape):
    """Placement policy of one deployment."""

    profile: Profile | None = None
    """How clusters are ordered; absent takes the fleet's."""
    priority_class_name: Name253 | None = None
    """Class of the fleet policy that gives the place in the queue."""
    preemption_policy: Literal["Never", "LowerPriority"] = "Never"
    """Whether it may push out replicas of lower priority."""
    min_available: Annotated[Whole, Field(ge=0)] | None = None
    """Replicas that preemption by others must leave."""
    topology_spread: Annotated[tuple[TopologySpread, ...], MapKeys(("topologyKey",), "constraint")] | None = None
    """Even spread over domains."""
    affinity: Affinity | None = None
    """What to be near to."""
    anti_affinity: Affinity | None = None
    """What to stay away from."""
    network_domain: Literal["Required", "Preferred", "Ignore"] = "Ignore"
    """Whether the engines of a PrefillDecode replica share one fast network."""
    gang_replicas: Annotated[Whole, Field(ge=1)] | None = None
    """Replicas that are placed together or not at all."""
    cache_required: Literal["Ready"] | None = None
    """Ready: only clusters on which the weights are already staged."""
