"""What is checked before every replica of a cluster is moved off it: a drain must not take down what has no other place."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

from api_types.clock import now_ms
from api_types.taints import DRAINED, scheduling_disabled
from client.errors import CommandFailed, NoAnswer, NotFound
from client.follow.requests import until_answered
from client.output.plan_answers import answer_lines
from client.planning.live_fleet import read_live
from client.planning.live_plan import question_context
from client.planning.proposed_changes import ProposedChanges
from client.planning.questions import CAN_DRAIN, Question, answer
from client.refs.targets import Target
from client.refs.tree import Tree
from client.temporal.control_plane import ControlPlane

# The whole fleet is read for the plan, after a start of its worker too.
_PLAN_SECONDS = 60.0


class Draining(NamedTuple):
    """A command that drains clusters: what it did not do, what to call it, and how to have it done all the same."""

    undone: str
    verb: str
    command: str


DRAIN = Draining("drained", "drain", "modelplane drain {name} --allow-loss")
EVICT = Draining("deleted", "delete it", "modelplane delete ic/{name} --evict --allow-loss")


async def check_loss(plane: ControlPlane, targets: Sequence[Target], draining: Draining, *, allow_loss: bool) -> None:
    """Plan the drain of clusters, all of them together, and show the replicas that would find no other place.

    Raises `CommandFailed` if there are any, unless they may be lost; `NotFound`; and `NoAnswer` if the fleet cannot be read.
    """
    for target in targets:
        others = tuple(each.name for each in targets if each != target)
        await _check(plane, target, others, draining, allow_loss=allow_loss)


async def _check(plane: ControlPlane, target: Target, others: tuple[str, ...], draining: Draining, *, allow_loss: bool) -> None:
    tree = await until_answered(lambda: plane.describe(target))
    if scheduling_disabled(tree.get("spec") or {}) == DRAINED:
        return
    try:
        plan = await until_answered(lambda: _plan(plane, target.name, others), _PLAN_SECONDS)
    except (NoAnswer, NotFound) as unknown:
        if not allow_loss:
            raise
        print(f"warning: what the drain takes down is not known: {unknown.message}", file=sys.stderr)
        return
    if plan["possible"]:
        return
    lines = answer_lines(plan)
    if not allow_loss:
        raise CommandFailed(
            f"{target.title} was not {draining.undone}: some replicas would find no other place",
            details=lines[1:],
            next_step=f"make room for them, or {draining.verb} all the same with `{draining.command.format(name=target.name)}`; "
            f"`modelplane plan --drain {target.name} -o wide` shows the reasons",
        )
    print("\n".join([f"warning: some replicas of {target.title} find no other place", *lines[1:]]), file=sys.stderr)


async def _plan(plane: ControlPlane, cluster: str, others: tuple[str, ...]) -> Tree:
    live = await read_live(plane)
    return answer(Question(CAN_DRAIN, cluster=cluster), question_context(live, ProposedChanges(drained=others), None, now_ms()), now_ms())
