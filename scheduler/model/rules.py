"""The rules of placement that a fleet's policy switches on or off, resolved once.

With `compat: reference` decisions equal those of the reference implementation, its known defects included; differential tests need that.
What it means is defined here, rule by rule. No other module reads the setting: code checks the rule it depends on.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.model.policy import REFERENCE, STRICT_ORDER, WHOLE_NODES, SchedulerOptions


@dataclass(frozen=True, slots=True)
class MatchRules:
    """How devices are matched with requests. Hashable, because compiled requests are kept per rules.

    Attributes:
        prefer_certain_claims: try entries that DRA binds first, then device plugins, then synthetic ones; else in class order.
        search_assignments: look for any assignment of entries when the greedy one fails.
        join_alike_entries: entries that claim alike may serve one request together.
        limit_claimed_devices: refuse what one ResourceClaim cannot hold.
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
    """What a scheduling cycle does, beyond the amounts in the policy.

    Attributes:
        matching: how devices are matched.
        reserve_for_queue: deployments that wait for capacity reserve it against those behind them.
        count_devices: on some pools devices are counted instead of whole nodes.
        use_profiles: clusters are scored by the profile in force; else by spread alone.
        search_arrangements: look for any arrangement of engines on pools when the greedy one fails.
        check_networks: engines that have to share a network do.
        span_pools: members of an engine may be placed on several pools where the engine allows it.
        check_cache_storage: a cluster that cannot stage the deployment's cache is filtered out.
        check_deleting: a cluster that is being deleted is filtered out.
        know_releasing: replicas whose workflow is shutting down are releasing, so they are not retained.
        replace_unselected: a replica on a cluster that is no longer selected is replaced at once.
        tolerate_drift: a replica whose pool changed under it stays, unless the deployment itself was edited.
        evict_before_placing: a replica that has to move is evicted before there is a place for its successor.
        follow_admission: the admission of clusters is followed: replicas that wait too long are moved, evictions are reported.
        pace_rollouts: a rollout changes as many replicas at a time as its budget allows; else all at once.
        remove_unhealthy_first: scaling down removes replicas that serve no traffic first; else by load and name alone.
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
        """Resolve a fleet's policy."""
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
            count_devices=full and any(unit != WHOLE_NODES for unit in (options.accounting, *options.class_accounting.values())),
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
