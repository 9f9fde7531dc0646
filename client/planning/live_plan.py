"""A plan over the live fleet, in the form of `plan -o json`: the decisions that would change, with nodes, cost and steps beside them.

A question is asked about the same fleet with the same changes.
"""

from client.planning.live_fleet import LiveFleet
from client.planning.proposed_changes import ProposedChanges, changes_of
from client.planning.questions import QuestionContext
from client.refs.tree import Tree
from scheduler import SchedulerOptions, decision_tree, explain_plan, plan, with_changes


def plan_live(live: LiveFleet, proposed: ProposedChanges, policy: SchedulerOptions | None, now: int) -> Tree:
    """Give the decisions that would change or that the proposal names, by namespace and name; the fleet is only read. Raises `NotFound`.

    Costs are in thousandths per hour, -1 where a price is not known.
    """
    changes = changes_of(live, proposed, policy)
    views = list(live.views.values())
    result = plan(live.fleet, changes, views, now)
    shown = proposed.deployments | {(diff.namespace, diff.name) for diff in result.deployments}
    return {
        "decisions": [decision_tree(explained) for explained in explain_plan(live.fleet, changes, views, now, shown)],
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


def question_context(live: LiveFleet, proposed: ProposedChanges, policy: SchedulerOptions | None, now: int) -> QuestionContext:
    """Give the fleet with the proposed changes, before anything is decided, as questions need it. Raises `NotFound`."""
    changes = changes_of(live, proposed, policy)
    views = {**live.views, **{(view.namespace, view.name): view for view in changes.deployments}}
    classes = {**live.classes, **{tree["metadata"]["name"]: tree for tree in proposed.of("InferenceClass")}}
    return QuestionContext(with_changes(live.fleet, changes, now), views, classes)
