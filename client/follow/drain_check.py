"""The check before a drain, which must not remove a replica that has no other place."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

from api_types.clock import now_ms
from api_types.taints import DRAINED, scheduling_disabled
from client.output.plan_answers import answer_lines
from client.planning.live_plan import question_context
from client.planning.proposed_changes import ProposedChanges
from client.planning.questions import CAN_DRAIN, Question, answer
from fleet_client.errors import CommandFailed, NoAnswer, NotFound
from fleet_client.placement.live_fleet import read_live
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree
from fleet_client.requests import until_answered
from fleet_client.temporal.control_plane import ControlPlane

# Planning reads the whole fleet, perhaps right after the worker has started.
_PLAN_SECONDS = 60.0


class Draining(NamedTuple):
    """The words for a command that drains a cluster.

    They are the result, the verb, and the command that accepts the loss of replicas.
    """

    undone: str
    verb: str
    command: str


DRAIN = Draining("drained", "drain", "modelplane drain {name} --allow-loss")
EVICT = Draining(
    "deleted", "delete it", "modelplane delete ic/{name} --evict --allow-loss"
)


async def check_loss(
    plane: ControlPlane,
    targets: Sequence[Target],
    draining: Draining,
    *,
    allow_loss: bool,
) -> None:
    """Plan the drain of all given clusters together, and show replicas without a place.

    Raise `CommandFailed` if there are any and `allow_loss` is False. Raise `NotFound`,
    and `NoAnswer` if the fleet cannot be read.
    """
    for target in targets:
        others = tuple(each.name for each in targets if each != target)
        await _check(plane, target, others, draining, allow_loss=allow_loss)


async def _check(
    plane: ControlPlane,
    target: Target,
    others: tuple[str, ...],
    draining: Draining,
    *,
    allow_loss: bool,
) -> None:
    tree = await until_answered(lambda: plane.describe(target))
    if scheduling_disabled(tree.get("spec") or {}) == DRAINED:
        return
    try:
        plan = await until_answered(
            lambda: _plan(plane, target.name, others), _PLAN_SECONDS
        )
    except (NoAnswer, NotFound) as unknown:
        if not allow_loss:
            raise
        print(
            f"warning: the replicas that the drain would lose are not known: {unknown.message}",
            file=sys.stderr,
        )
        return
    if plan["possible"]:
        return
    lines = answer_lines(plan)
    if not allow_loss:
        raise CommandFailed(
            f"{target.title} was not {draining.undone}: some replicas would find no other place",
            details=lines[1:],
            next_step=f"make room for them, or {draining.verb} anyway with "
            f"`{draining.command.format(name=target.name)}`; `modelplane plan "
            f"--drain {target.name} -o wide` shows the reasons",
        )
    print(
        "\n".join(
            [
                f"warning: some replicas of {target.title} find no other place",
                *lines[1:],
            ]
        ),
        file=sys.stderr,
    )


async def _plan(plane: ControlPlane, cluster: str, others: tuple[str, ...]) -> Tree:
    live = await read_live(plane)
    return answer(
        Question(CAN_DRAIN, cluster=cluster),
        question_context(live, ProposedChanges(drained=others), None, now_ms()),
        now_ms(),
    )
