"""Read and write the fleet's policy document.

One document covers the whole fleet: accounting, default profile, priority classes and
quotas. All mistakes are reported together, and no value is guessed.
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
from scheduler.model.policy import (
    BEST_EFFORT,
    DEVICE_PACKED,
    DEVICE_SAFE,
    REFERENCE,
    STRICT_ORDER,
    WHOLE_NODES,
    Quota,
    SchedulerOptions,
)
from scheduler.model.wire import camel, from_wire, to_wire
from scheduler.placement.score import PROFILES, WEIGHABLE, WEIGHTED

ACCOUNTING = (WHOLE_NODES, DEVICE_SAFE, DEVICE_PACKED)
COMPAT = ("", REFERENCE)
QUEUE_ORDERS = (BEST_EFFORT, STRICT_ORDER)
COST_MAX = 1_000_000
_WEIGHT_MAX = 1_000
_PERCENTAGE = re.compile(r"[0-9]{1,9}%")
# Thirty years: timers cannot reach a later end.
_SECONDS_MAX = 1_000_000_000
# The problems of a rejected policy are stored in the scheduler's state and are part of
# its responses.
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
    """Validate a policy document and read it; absent fields take their defaults.

    Raise InvalidPolicyError with the first problems.
    """
    found = chain(
        _unknown("", document, SchedulerOptions),
        _top_problems(document),
        _quota_problems(document.get("quotas")),
    )
    problems = list(islice(found, _PROBLEMS_MAX + 1))
    if len(problems) > _PROBLEMS_MAX:
        problems[_PROBLEMS_MAX:] = ["there are more problems"]
    if problems:
        raise InvalidPolicyError(problems)
    return from_wire(SchedulerOptions, document)


def write_policy(options: SchedulerOptions) -> dict[str, Any]:
    """Return the policy as a document with all fields."""
    sparse = to_wire(options)
    defaults: dict[str, Any] = {}
    for field in fields(SchedulerOptions):
        value = getattr(options, field.name)
        if isinstance(value, Mapping):
            value = dict(value)
        elif not isinstance(value, str | int):
            value = []
        defaults[camel(field.name)] = value
    return {**defaults, **sparse}


def _unknown(prefix: str, tree: Mapping[str, Any], kind: type) -> Iterator[str]:
    known = [camel(field.name) for field in fields(kind)]
    for key in tree:
        if key not in known:
            near = get_close_matches(_shown_name(key), known, 1)
            hint = f"; known fields are {', '.join(known)}"
            if near:
                hint = f", did you mean {near[0]}?"
            yield f"{prefix}{_shown_name(key)}: unknown field{hint}"


def _shown_name(key: object) -> str:
    if not isinstance(key, str):
        return _REPR.repr(key)
    return key if len(key) <= _SHOWN_MAX else f"{key[: _SHOWN_MAX - 3]}..."


def _name_problem(key: object) -> str:
    """Return the problem of a name that is not text.

    JSON would convert it to text, so the effective policy would differ from the
    document.
    """
    return f"names must be text, got {_REPR.repr(key)}"


def _not_whole(value: object) -> str:
    return f"must be a whole number of 64 bits, got {_REPR.repr(value)}"


def _one_of(choices: tuple[str, ...]) -> Callable[[Any], str]:
    names = ", ".join(repr(choice) for choice in choices)

    def check(value: Any) -> str:
        if value in choices:
            return ""
        return f"must be one of {names}, got {_REPR.repr(value)}"

    return check


def _whole(least: int, most: int | None = None) -> Callable[[Any], str]:
    bounds = f"at least {least}" if most is None else f"between {least} and {most}"

    def check(value: Any) -> str:
        if is_whole(value) and value >= least and (most is None or value <= most):
            return ""
        return f"must be a whole number {bounds}, got {_REPR.repr(value)}"

    return check


def _flag(value: Any) -> str:
    if isinstance(value, bool):
        return ""
    return f"must be true or false, got {_REPR.repr(value)}"


def _amount(value: Any) -> str:
    if isinstance(value, str) and _PERCENTAGE.fullmatch(value):
        return ""
    if not _whole(0)(value):
        return ""
    return (
        f"must be a whole number or a percentage such as 25%, got {_REPR.repr(value)}"
    )


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


def _map_problems(
    field: str, value: Any, keys: tuple[str, ...], check: Callable[[Any], str]
) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{field}: must be a map, got {_REPR.repr(value)}"
        return
    for key, item in value.items():
        name = f"{field}.{_shown_name(key)}"
        if not isinstance(key, str):
            yield f"{field}: {_name_problem(key)}"
        elif keys and key not in keys:
            yield f"{name}: unknown; known names are {', '.join(keys)}"
        elif problem := check(item):
            yield f"{name}: {problem}"


def _top_problems(document: Mapping[str, Any]) -> Iterator[str]:
    for key, check in _CHECKS.items():
        problem = check(document[key]) if key in document else ""
        if problem:
            yield f"{key}: {problem}"
    yield from _map_problems(
        "weights", document.get("weights", {}), WEIGHABLE, _whole(1, _WEIGHT_MAX)
    )
    yield from _map_problems(
        "classAccounting", document.get("classAccounting", {}), (), _one_of(ACCOUNTING)
    )
    if document.get("profile") == WEIGHTED and not document.get("weights"):
        yield "weights: is required by the profile 'weighted'"
    classes = document.get("priorityClasses", {})
    if not isinstance(classes, Mapping):
        shown = _REPR.repr(classes)
        yield f"priorityClasses: must map names to whole numbers, got {shown}"
        return
    for name, value in classes.items():
        if not isinstance(name, str):
            yield f"priorityClasses: {_name_problem(name)}"
        elif not is_whole(value):
            yield f"priorityClasses.{_shown_name(name)}: {_not_whole(value)}"


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
            yield f"{at}.namespace: is required: the namespace that the quota limits"
        for key in ("maxNodes", "maxDevices"):
            problem = _whole(0)(quota[key]) if key in quota else ""
            if problem:
                yield f"{at}.{key}: {problem}"
        if "priorityFloor" in quota and not is_whole(quota["priorityFloor"]):
            yield f"{at}.priorityFloor: {_not_whole(quota['priorityFloor'])}"
        for key in ("className", "deviceSelector"):
            if not isinstance(quota.get(key, ""), str):
                yield f"{at}.{key}: must be text, got {_REPR.repr(quota[key])}"
        selector = quota.get("deviceSelector", "")
        if isinstance(selector, str) and selector:
            refused = check_selector(selector)
            if refused:
                yield f"{at}.deviceSelector: {refused}"
        labels = quota.get("matchLabels", {})
        if not _is_text_map(labels):
            shown = _REPR.repr(labels)
            yield f"{at}.matchLabels: must map label keys to text, got {shown}"


def _is_text_map(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    return all(isinstance(text, str) for text in chain(value.keys(), value.values()))
