"""A plan over the live fleet: what a hypothesis would change, in the form of `plan -o json`, with nodes, cost and steps beside it.

Questions about the fleet are asked of the same world, with the hypothesis in it.
"""

from client.planning.hypothesis import Hypothesis, changes_of
from client.planning.live_fleet import LiveFleet
from client.planning.local_decisions import decide_all
from client.planning.questions import World
from client.refs.tree import Tree
from scheduler import Decision, SchedulerOptions, changed, end_state, plan


def live_plan(live: LiveFleet, supposed: Hypothesis, policy: SchedulerOptions | None, now: int) -> Tree:
    """Give the decisions that would change or were asked about, by namespace and name; the fleet is only read. Raises `NotFound`.

    Costs are in thousandths per hour, -1 where a price is not known.
    """
    changes = changes_of(live, supposed, policy)
    result = plan(live.fleet, changes, list(live.views.values()), now)
    asked = supposed.deployments | {(diff.namespace, diff.name) for diff in result.deployments}

    def is_shown(decision: Decision) -> bool:
        return (decision.namespace, decision.deployment) in asked

    views = {**live.views, **{(view.namespace, view.name): view for view in changes.deployments}}
    world = changed(live.fleet, changes, now)
    decided = decide_all(world, [end_state(views[owner]) for owner in sorted(views)], now, is_shown)
    return {
        "decisions": [planned.tree for planned in decided if planned.tree],
        "pools": [
            {
                "cluster": cluster,
                "pool": pool,
                "nodesBefore": use.before,
                "nodesAfter": use.after,
                "costMilliBefore": use.cost_before,
                "costMilliAfter": use.cost_after,
            }
            for (cluster, pool), use in result.pools.items()
        ],
        "steps": [list(step) for step in result.steps],
    }


def live_world(live: LiveFleet, supposed: Hypothesis, policy: SchedulerOptions | None, now: int) -> World:
    """Give the fleet as it would be under a hypothesis, before anything is placed anew; the fleet is only read. Raises `NotFound`."""
    changes = changes_of(live, supposed, policy)
    views = {**live.views, **{(view.namespace, view.name): view for view in changes.deployments}}
    classes = {**live.classes, **{tree["metadata"]["name"]: tree for tree in supposed.of("InferenceClass")}}
    return World(changed(live.fleet, changes, now), views, classes)
