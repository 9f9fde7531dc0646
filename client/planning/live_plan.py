"""A plan over the live fleet, in the form of `plan -o json`.

It has the decisions that would change, with nodes, costs and steps. A question uses the
same fleet and the same changes.
"""

from client.planning.proposed_changes import ProposedChanges, changes_of
from client.planning.questions import QuestionContext
from fleet_client.placement.live_fleet import LiveFleet
from fleet_client.refs.tree import Tree
from scheduler import SchedulerOptions, decision_tree, explain_plan, plan, with_changes


def plan_live(
    live: LiveFleet,
    proposed: ProposedChanges,
    policy: SchedulerOptions | None,
    now: int,
) -> Tree:
    """Return the decisions that the proposal changes or names.

    They are sorted by namespace and name. The fleet is only read. Costs are in
    thousandths per hour, or -1 if a price is not known. Raise `NotFound`.
    """
    changes = changes_of(live, proposed, policy)
    views = list(live.views.values())
    result = plan(live.fleet, changes, views, now)
    changed = {(diff.namespace, diff.name) for diff in result.deployments}
    shown = proposed.deployments | changed
    explained = explain_plan(live.fleet, changes, views, now, shown)
    pools = [
        {
            "cluster": cluster,
            "pool": pool,
            "nodesBefore": use.before,
            "nodesAfter": use.after,
            "costMilliBefore": use.cost_before,
            "costMilliAfter": use.cost_after,
        }
        for (cluster, pool), use in result.pools.items()
    ]
    return {
        "decisions": [decision_tree(each) for each in explained],
        "pools": pools,
        "steps": [list(step) for step in result.steps],
    }


def question_context(
    live: LiveFleet,
    proposed: ProposedChanges,
    policy: SchedulerOptions | None,
    now: int,
) -> QuestionContext:
    """Return the fleet with the proposed changes, before any decision.

    Raise `NotFound`.
    """
    changes = changes_of(live, proposed, policy)
    views = live.views
    for view in changes.deployments:
        views[view.namespace, view.name] = view
    classes = dict(live.classes)
    for tree in proposed.of("InferenceClass"):
        classes[tree["metadata"]["name"]] = tree
    return QuestionContext(with_changes(live.fleet, changes, now), views, classes)
