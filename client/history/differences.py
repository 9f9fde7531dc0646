"""In what two answers to the same request differ. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from client.refs.tree import Tree
from scheduler import Decision, Eviction, Placement, to_wire
from workflows.fleet_scheduler.recorded_decisions import Outcome

# What the lines below say; all other fields of a decision are compared as a whole.
_SAID = ("placements", "stamps", "evictions", "victims", "shortfall", "message", "digest")


@dataclass(frozen=True)
class Difference:
    """One thing that was recorded, or that is decided now, and not the other way round; empty where there is none."""

    what: str
    recorded: str = ""
    now: str = ""

    @property
    def tree(self) -> Tree:
        """Give it for machines."""
        return {"what": self.what, "recorded": self.recorded, "now": self.now}


def differences(recorded: Outcome, now: Outcome) -> list[Difference]:
    """Give all differences but that of the scheduler's version; none: the answer is the same."""
    if recorded.decision is None or now.decision is None:
        return [] if recorded == now else [Difference("outcome", _outcome(recorded), _outcome(now))]
    before, after = (replace(each, scheduler_version="") for each in (recorded.decision, now.decision))
    if before == after:
        return []
    found = [
        *_lines("placement", map(_placement, before.placements), map(_placement, after.placements)),
        *_lines("eviction", map(_eviction, before.evictions), map(_eviction, after.evictions)),
        *_lines("preemption", map(_eviction, before.victims), map(_eviction, after.victims)),
    ]
    texts = [("missing replicas", str(before.shortfall), str(after.shortfall)), ("message", before.message, after.message)]
    found += [Difference(*each) for each in texts if each[1] != each[2]]
    was, is_now = _other(before), _other(after)
    found += [
        Difference(key, str(was.get(key, "")), str(is_now.get(key, "")))
        for key in sorted({*was, *is_now})
        if was.get(key) != is_now.get(key)
    ]
    return found or [Difference("digest", before.digest, after.digest)]


def _outcome(outcome: Outcome) -> str:
    return f"decided: {outcome.decision.message}" if outcome.decision else f"not decided: {outcome.problem}"


def _lines(what: str, before: Iterable[str], after: Iterable[str]) -> list[Difference]:
    was, is_now = list(before), list(after)
    return [
        *(Difference(what, recorded=line) for line in was if line not in is_now),
        *(Difference(what, now=line) for line in is_now if line not in was),
    ]


def _placement(placement: Placement) -> str:
    pools = ", ".join(
        f"{engine.engine}: {'+'.join(dict.fromkeys(member.pool for member in engine.members))}" for engine in placement.engines
    )
    return f"{placement.action} {placement.replica_name} on {placement.cluster} ({pools}), uid {placement.uid}"


def _eviction(eviction: Eviction) -> str:
    owner = f"{eviction.namespace}/" if eviction.namespace else ""
    return f"{owner}{eviction.replica_name} on {eviction.cluster}: {eviction.detail or eviction.reason}, uid {eviction.uid}"


def _other(decision: Decision) -> dict[str, Any]:
    return {key: value for key, value in to_wire(decision).items() if key not in _SAID}
