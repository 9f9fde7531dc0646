"""The placement rules that a fleet's policy switches on or off, resolved once.

With `compat: reference`, decisions equal those of the reference implementation,
including its known defects. Differential tests need that. This module defines the
difference rule by rule. No other module reads the setting; code checks the rule it
depends on.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.model.policy import (
    REFERENCE,
    STRICT_ORDER,
    WHOLE_NODES,
    SchedulerOptions,
)


@dataclass(frozen=True, slots=True)
class MatchRules:
    """Rules for matching devices with requests.

    The class is hashable, because compiled requests are cached per rules.

    Attributes:
        prefer_certain_claims: try entries that DRA binds first, then device plugins, then
            synthetic ones; else use class order.
        search_assignments: search for any assignment of entries if the greedy one fails.
        join_alike_entries: entries that claim alike may serve one request together.
        limit_claimed_devices: reject requests that exceed one ResourceClaim.
        lenient_calls: compile selectors with calls that only older clusters accept.
        max_cost: limit of CEL cost units per evaluation.

    """

    prefer_certain_claims: bool = True
    search_assignments: bool = True
    join_alike_entries: bool = True
    limit_claimed_devices: bool = True
    lenient_calls: bool = False
    max_cost: int = 20_000


@dataclass(frozen=True, slots=True)
class PlacementRules:
    """Rules of a scheduling cycle.

    Attributes:
        matching: rules for matching devices.
        reserve_for_queue: waiting deployments reserve capacity against later requests.
        count_devices: some pools count devices instead of whole nodes.
        use_profiles: the profile in force scores clusters; else spread alone does.
        search_arrangements: search for any arrangement of engines on pools if the
            greedy one fails.
        check_networks: enforce a shared network for engines that need one.
        span_pools: members of an engine may use several pools if the engine allows it.
        check_cache_storage: filter out clusters that cannot stage the deployment's
            cache.
        check_deleting: filter out clusters that are being deleted.
        know_releasing: replicas whose workflow is shutting down are releasing, so they
            are not retained.
        replace_unselected: replace a replica at once if its cluster is no longer
            selected.
        tolerate_drift: keep a replica whose pool changed, unless the deployment itself
            was edited.
        evict_before_placing: evict a replica that has to move before its successor has
            a place.
        follow_admission: follow the admission of clusters: move replicas that wait too
            long, and report evictions.
        pace_rollouts: a rollout changes as many replicas at a time as its budget
            allows; else all at once.
        remove_unhealthy_first: scaling down removes replicas without traffic first;
            else load and name decide.
        preempt: replicas of lower priority may be preempted.

    """

    matching: MatchRules
    reserve_for_queue: bool
    count_devices: bool
    use_profiles: bool
    search_arrangements: bool
    check_networks: bool
    span_pools: bool
    check_cache_storage: bool
    check_deleting: bool
    know_releasing: bool
    replace_unselected: bool
    tolerate_drift: bool
    evict_before_placing: bool
    follow_admission: bool
    pace_rollouts: bool
    remove_unhealthy_first: bool
    preempt: bool

    @staticmethod
    def of(options: SchedulerOptions) -> PlacementRules:
        full = options.compat != REFERENCE
        return PlacementRules(
            matching=MatchRules(
                prefer_certain_claims=full,
                search_assignments=full,
                join_alike_entries=full,
                limit_claimed_devices=full,
                lenient_calls=options.lenient_calls,
                max_cost=options.max_cost,
            ),
            reserve_for_queue=full and options.queue_order == STRICT_ORDER,
            count_devices=full
            and any(
                unit != WHOLE_NODES
                for unit in (options.accounting, *options.class_accounting.values())
            ),
            use_profiles=full,
            search_arrangements=full,
            check_networks=full,
            span_pools=full,
            check_cache_storage=full,
            check_deleting=full,
            know_releasing=full,
            replace_unselected=not full,
            tolerate_drift=full,
            evict_before_placing=not full,
            follow_admission=full,
            pace_rollouts=full,
            remove_unhealthy_first=full,
            preempt=full,
        )
