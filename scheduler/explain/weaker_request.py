"""The requests of a deployment, weakened as far as one kind of node has the devices: bounds such as memory, lowered to what is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from scheduler.cel import Unmet, lowered
from scheduler.explain.selector_gap import selector_gap
from scheduler.hardware.device_matching import member_need
from scheduler.model.inputs import DeviceSet, EngineView, MemberView
from scheduler.model.rules import MatchRules

# Bounds that are lowered for one member; each is one more difference to what was asked for.
_CHANGES_MAX = 4


def weaker_engines(engines: Sequence[EngineView], rules: MatchRules, devices: DeviceSet) -> tuple[tuple[EngineView, ...], str] | None:
    """Give the engines with lower bounds, and the change in words; None where lower bounds alone do not make every member fit."""
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


def _weaker(member: MemberView, rules: MatchRules, devices: DeviceSet, told: dict[str, None]) -> MemberView | None:
    for _ in range(_CHANGES_MAX):
        need = member_need(member.requests, rules)
        fit = need.fit(devices)
        if fit.fits:
            return member
        gap = selector_gap(need, fit.request, devices.entries)
        # Whatever else differs would still refuse the device.
        unmet = gap.unmet[0] if gap and len(gap.unmet) == gap.differences == 1 else None
        text = lowered(gap.text, unmet) if gap and unmet else ""
        if gap is None or unmet is None or not text:
            return None
        request = need.requests[gap.request]
        selectors = tuple(text if n == gap.selector else known for n, known in enumerate(request.selectors, 1))
        requests = tuple(replace(known, selectors=selectors) if i == gap.request else known for i, known in enumerate(member.requests))
        member = replace(member, requests=requests)
        told[_text(unmet, request.name)] = None
    return None


def _text(unmet: Unmet, request: str) -> str:
    return f"{unmet.name} lowered to {unmet.has} in request {request}"
