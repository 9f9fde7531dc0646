"""The fleet's policy as people write it, and back.

One document for the whole fleet: how capacity is counted, which profile is the default, what priority classes and quotas there are. Every
mistake is named at once; nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from difflib import get_close_matches
from itertools import chain, islice
from reprlib import Repr
from typing import Any

from scheduler.cel import check_selector
from scheduler.model.fields import is_whole
from scheduler.model.policy import BEST_EFFORT, DEVICE_PACKED, DEVICE_SAFE, REFERENCE, STRICT_ORDER, WHOLE_NODES, Quota, SchedulerOptions
from scheduler.model.wire import camel, from_wire, to_wire
from scheduler.placement.score import PROFILES, WEIGHABLE, WEIGHTED

ACCOUNTING = (WHOLE_NODES, DEVICE_SAFE, DEVICE_PACKED)
COMPAT = ("", REFERENCE)
QUEUE_ORDERS = (BEST_EFFORT, STRICT_ORDER)
COST_MAX = 1_000_000
_WEIGHT_MAX = 1_000
_PERCENTAGE = re.compile(r"[0-9]{1,9}%")
# Thirty years: an end that no timer reaches is none.
_SECONDS_MAX = 1_000_000_000
# The problems of a refused policy are stored with the scheduler's state and are part of its answers.
_PROBLEMS_MAX = 20
_SHOWN_MAX = 80
_REPR = Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = _SHOWN_MAX
_REPR.maxlevel = 2


class InvalidPolicyError(ValueError):
    """A policy document with problems; each is `<field>: <problem>`."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def read_policy(document: Mapping[str, Any]) -> SchedulerOptions:
    """Check a policy document and read it; absent fields take their defaults. Raises InvalidPolicyError with the first problems."""
    found = chain(_unknown("", document, SchedulerOptions), _top_problems(document), _quota_problems(document.get("quotas")))
    problems = list(islice(found, _PROBLEMS_MAX + 1))
    if len(problems) > _PROBLEMS_MAX:
        problems[_PROBLEMS_MAX:] = ["there are more problems"]
    if problems:
        raise InvalidPolicyError(problems)
    return from_wire(SchedulerOptions, document)


def write_policy(options: SchedulerOptions) -> dict[str, Any]:
    """Give the policy as a document in which nothing is left out."""
    sparse = to_wire(options)
    defaults: dict[str, Any] = {}
    for field in fields(SchedulerOptions):
        value = getattr(options, field.name)
        defaults[camel(field.name)] = value if isinstance(value, str | int) else dict(value) if isinstance(value, Mapping) else []
    return {**defaults, **sparse}


def _unknown(prefix: str, tree: Mapping[str, Any], kind: type) -> Iterator[str]:
    known = [camel(field.name) for field in fields(kind)]
    for key in tree:
        if key not in known:
            near = get_close_matches(_shown_name(key), known, 1)
            hint = f", did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"
            yield f"{prefix}{_shown_name(key)}: unknown field{hint}"


def _shown_name(key: object) -> str:
    if not isinstance(key, str):
        return _REPR.repr(key)
    return key if len(key) <= _SHOWN_MAX else f"{key[: _SHOWN_MAX - 3]}..."


def _name_problem(key: object) -> str:
    """Say that a name is not text: JSON would make text of it, and the policy in force would be another one than was sent."""
    return "" if isinstance(key, str) else f"names must be text, got {_REPR.repr(key)}"


def _one_of(choices: tuple[str, ...]) -> Callable[[Any], str]:
    return lambda value: "" if value in choices else f"must be one of {', '.join(repr(c) for c in choices)}, got {_REPR.repr(value)}"


def _whole(least: int, most: int | None = None) -> Callable[[Any], str]:
    bounds = f"at least {least}" if most is None else f"between {least} and {most}"

    def check(value: Any) -> str:
        return (
            ""
            if is_whole(value) and value >= least and (most is None or value <= most)
            else f"must be a whole number {bounds}, got {_REPR.repr(value)}"
        )

    return check


def _flag(value: Any) -> str:
    return "" if isinstance(value, bool) else f"must be true or false, got {_REPR.repr(value)}"


def _amount(value: Any) -> str:
    if isinstance(value, str) and _PERCENTAGE.fullmatch(value):
        return ""
    problem = _whole(0)(value)
    return f"must be a whole number or a percentage such as 25%, got {_REPR.repr(value)}" if problem else ""


_CHECKS: Mapping[str, Callable[[Any], str]] = {
    "profile": _one_of((*PROFILES, WEIGHTED)),
    "accounting": _one_of(ACCOUNTING),
    "compat": _one_of(COMPAT),
    "lenientCalls": _flag,
    "maxCost": _whole(1, COST_MAX),
    "reservationTtlSeconds": _whole(1, _SECONDS_MAX),
    "preemptionCooldownSeconds": _whole(0, _SECONDS_MAX),
    "observedLimitSeconds": _whole(0, _SECONDS_MAX),
    "packedEnforced": _flag,
    "rolloutMaxUnavailable": _amount,
    "queueOrder": _one_of(QUEUE_ORDERS),
    "holdForSeconds": _whole(0, _SECONDS_MAX),
    "admissionTimeoutSeconds": _whole(1, _SECONDS_MAX),
    "refusalSeconds": _whole(0, _SECONDS_MAX),
}


def _map_problems(field: str, value: Any, keys: tuple[str, ...], check: Callable[[Any], str]) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{field}: must be a map, got {_REPR.repr(value)}"
        return
    for key, item in value.items():
        if problem := _name_problem(key):
            yield f"{field}: {problem}"
        elif keys and key not in keys:
            yield f"{field}.{_shown_name(key)}: unknown; known are {', '.join(keys)}"
        elif problem := check(item):
            yield f"{field}.{_shown_name(key)}: {problem}"


def _top_problems(document: Mapping[str, Any]) -> Iterator[str]:
    for key, check in _CHECKS.items():
        problem = check(document[key]) if key in document else ""
        if problem:
            yield f"{key}: {problem}"
    yield from _map_problems("weights", document.get("weights", {}), WEIGHABLE, _whole(1, _WEIGHT_MAX))
    yield from _map_problems("classAccounting", document.get("classAccounting", {}), (), _one_of(ACCOUNTING))
    if document.get("profile") == WEIGHTED and not document.get("weights"):
        yield "weights: is required by the profile 'weighted'"
    classes = document.get("priorityClasses", {})
    if not isinstance(classes, Mapping):
        yield f"priorityClasses: must map names to whole numbers, got {_REPR.repr(classes)}"
        return
    for name, value in classes.items():
        if problem := _name_problem(name):
            yield f"priorityClasses: {problem}"
        elif not is_whole(value):
            yield f"priorityClasses.{_shown_name(name)}: must be a whole number of 64 bits, got {_REPR.repr(value)}"


def _quota_problems(quotas: Any) -> Iterator[str]:
    if quotas is None:
        return
    if not isinstance(quotas, list):
        yield f"quotas: must be a list, got {_REPR.repr(quotas)}"
        return
    for i, quota in enumerate(quotas):
        at = f"quotas[{i}]"
        if not isinstance(quota, Mapping):
            yield f"{at}: must be a map, got {_REPR.repr(quota)}"
            continue
        yield from _unknown(f"{at}.", quota, Quota)
        if not isinstance(quota.get("namespace"), str) or not quota["namespace"]:
            yield f"{at}.namespace: is required, the namespace that the limit holds for"
        for key in ("maxNodes", "maxDevices"):
            problem = _whole(0)(quota[key]) if key in quota else ""
            if problem:
                yield f"{at}.{key}: {problem}"
        if "priorityFloor" in quota and not is_whole(quota["priorityFloor"]):
            yield f"{at}.priorityFloor: must be a whole number of 64 bits, got {_REPR.repr(quota['priorityFloor'])}"
        for key in ("className", "deviceSelector"):
            if not isinstance(quota.get(key, ""), str):
                yield f"{at}.{key}: must be text, got {_REPR.repr(quota[key])}"
        selector = quota.get("deviceSelector", "")
        refused = check_selector(selector) if isinstance(selector, str) and selector else None
        if refused:
            yield f"{at}.deviceSelector: {refused}"
        labels = quota.get("matchLabels", {})
        if not isinstance(labels, Mapping) or not all(isinstance(text, str) for pair in labels.items() for text in pair):
            yield f"{at}.matchLabels: must map label keys to text, got {_REPR.repr(labels)}"
