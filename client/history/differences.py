"""The differences between two answers to the same request. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from fleet_client.refs.tree import Tree
from scheduler import Decision, Eviction, Placement, to_wire
from workflows.fleet_scheduler.recorded_decisions import DecisionOutcome

# Fields that are compared item by item. All other fields are compared as a whole.
_SAID = (
    "placements",
    "stamps",
    "evictions",
    "victims",
    "shortfall",
    "message",
    "digest",
)


@dataclass(frozen=True)
class AnswerDifference:
    """A value that differs between two answers. A missing value is empty."""

    what: str
    recorded: str = ""
    now: str = ""

    @property
    def tree(self) -> Tree:
        """The difference as `-o json` prints it."""
        return {"what": self.what, "recorded": self.recorded, "now": self.now}


def differences(
    recorded: DecisionOutcome, now: DecisionOutcome
) -> list[AnswerDifference]:
    """Return all differences except the scheduler's version and the time.

    A replay repeats a decision some seconds later than the history if the decision
    outlasted its workflow task.
    """
    if recorded.decision is None or now.decision is None:
        if recorded == now:
            return []
        return [AnswerDifference("outcome", _outcome(recorded), _outcome(now))]
    before, after = (
        replace(each, scheduler_version="", now=0)
        for each in (recorded.decision, now.decision)
    )
    if before == after:
        return []
    found = [
        *_lines(
            "placement",
            map(_placement, before.placements),
            map(_placement, after.placements),
        ),
        *_lines(
            "eviction",
            map(_eviction, before.evictions),
            map(_eviction, after.evictions),
        ),
        *_lines(
            "preemption", map(_eviction, before.victims), map(_eviction, after.victims)
        ),
    ]
    texts = [
        ("missing replicas", str(before.shortfall), str(after.shortfall)),
        ("message", before.message, after.message),
    ]
    found += [AnswerDifference(*each) for each in texts if each[1] != each[2]]
    was, is_now = _other(before), _other(after)
    found += [
        AnswerDifference(key, str(was.get(key, "")), str(is_now.get(key, "")))
        for key in sorted({*was, *is_now})
        if was.get(key) != is_now.get(key)
    ]
    return found or [AnswerDifference("digest", before.digest, after.digest)]


def _outcome(outcome: DecisionOutcome) -> str:
    return (
        f"decided: {outcome.decision.message}"
        if outcome.decision
        else f"not decided: {outcome.problem}"
    )


def _lines(
    what: str, before: Iterable[str], after: Iterable[str]
) -> list[AnswerDifference]:
    was, is_now = list(before), list(after)
    return [
        *(AnswerDifference(what, recorded=line) for line in was if line not in is_now),
        *(AnswerDifference(what, now=line) for line in is_now if line not in was),
    ]


def _placement(placement: Placement) -> str:
    engines = []
    for engine in placement.engines:
        pools = dict.fromkeys(member.pool for member in engine.members)
        engines.append(f"{engine.engine}: {'+'.join(pools)}")
    return (
        f"{placement.action} {placement.replica_name} on {placement.cluster} "
        f"({', '.join(engines)}), uid {placement.uid}"
    )


def _eviction(eviction: Eviction) -> str:
    owner = f"{eviction.namespace}/" if eviction.namespace else ""
    why = eviction.detail or eviction.reason
    replica = f"{owner}{eviction.replica_name} on {eviction.cluster}"
    return f"{replica}: {why}, uid {eviction.uid}"


def _other(decision: Decision) -> dict[str, Any]:
    return {key: value for key, value in to_wire(decision).items() if key not in _SAID}
