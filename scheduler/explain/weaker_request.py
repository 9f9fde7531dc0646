"""Weaker requests: a deployment's requests, changed so that one kind of node fits them.

A missing name is replaced by the nearest existing one. A bound, such as memory, is
lowered to the existing value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from scheduler.cel import check_selector, lowered, renamed
from scheduler.explain.near_names import nearest
from scheduler.explain.selector_gap import selector_gap
from scheduler.hardware.device_matching import member_need
from scheduler.model.inputs import DeviceSet, EngineView, MemberView
from scheduler.model.rules import MatchRules

# Limit of changes per member.
_CHANGES_MAX = 4


def weaker_engines(
    engines: Sequence[EngineView], rules: MatchRules, devices: DeviceSet
) -> tuple[tuple[EngineView, ...], str] | None:
    """Return engines with weaker requests and the changes as text.

    Return None if the changes do not make every member fit.
    """
    told: dict[str, None] = {}
    changed = []
    for engine in engines:
        members = []
        for member in engine.members:
            weaker = _weaker(member, rules, devices, told)
            if weaker is None:
                return None
            members.append(weaker)
        changed.append(replace(engine, members=tuple(members)))
    return (tuple(changed), " and ".join(told)) if told else None


def _weaker(
    member: MemberView, rules: MatchRules, devices: DeviceSet, told: dict[str, None]
) -> MemberView | None:
    for _ in range(_CHANGES_MAX):
        need = member_need(member.requests, rules)
        fit = need.fit(devices)
        if fit.fits:
            return member
        gap = selector_gap(need, fit.request, devices)
        # Further differences would still make the device fail.
        if gap is None or len(gap.unmet) != 1 or gap.differences > 1:
            return None
        unmet, request = gap.unmet[0], need.requests[gap.request]
        if unmet.names:
            other = nearest(unmet.name, unmet.names)
            text = renamed(gap.text, unmet, other) if other else ""
            change = f"{other} instead of {unmet.name}"
        else:
            text = lowered(gap.text, unmet)
            change = f"{unmet.name} lowered to {unmet.has}"
        if not text or check_selector(text):
            return None
        selectors = tuple(
            text if n == gap.selector else known
            for n, known in enumerate(request.selectors, 1)
        )
        requests = tuple(
            replace(known, selectors=selectors) if i == gap.request else known
            for i, known in enumerate(member.requests)
        )
        member = replace(member, requests=requests)
        told[f"{change} in request {request.name}"] = None
    return None
