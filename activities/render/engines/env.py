"""The environment of an engine container: the user's variables and the platform's.

The order matters twice: `$(X)` refers only to earlier variables, and server-side apply
keys the list by name, so that the API server rejects duplicates.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from activities.render.inputs.findings import Findings
from activities.render.inputs.reader import Reader
from activities.render.objects import contract

# Kubernetes allows printable ASCII without '='.
_NAME = re.compile(r"[ -<>-~]+")
_REFERENCES = {"secretKeyRef": "Secret", "configMapKeyRef": "ConfigMap"}
_SOURCES = (*_REFERENCES, "fieldRef")

EnvVar = dict[str, Any]


def read_env(container: Reader, *, gang: bool) -> tuple[Mapping[str, Any], ...]:
    """Check the user's variables and return them unchanged, in order."""
    findings = container.findings
    entries = container.sequence("env")
    variables = [
        Reader(entry, f"{container.where}, env", findings) for entry in entries
    ]
    names = [variable.text("name", required=True) for variable in variables]
    for name, times in Counter(names).items():
        if name and times > 1:
            findings.problem(
                container.where, f"env {name} is set {times} times: keep one"
            )
    for name, variable in zip(names, variables, strict=True):
        where = f"{container.where}, env {name}"
        if name and not _NAME.fullmatch(name):
            findings.problem(where, "the name must be printable ASCII without '='")
        if gang and name in contract.LWS_ENV:
            findings.warn(
                where,
                "is overwritten: the LeaderWorkerSet controller sets it in every pod",
            )
        if name.startswith(contract.MODELPLANE_ENV_PREFIX) and name not in (
            contract.LEADER_ADDRESS_ENV,
            contract.RANK_ENV,
        ):
            findings.warn(
                where,
                f"names starting with {contract.MODELPLANE_ENV_PREFIX} are reserved "
                "and may get a meaning later",
            )
        _check_source(variable, where, findings)
    return tuple(_without_nulls(variable.fields) for variable in variables)


def gang_env() -> list[EnvVar]:
    """Return the variables that describe the group to every pod of a gang."""
    return [
        {"name": contract.LEADER_ADDRESS_ENV, "value": "$(LWS_LEADER_ADDRESS)"},
        {"name": contract.RANK_ENV, "value": "$(LWS_WORKER_INDEX)"},
    ]


def merge_env(
    *, before: list[EnvVar], user: list[EnvVar], after: list[EnvVar]
) -> list[EnvVar]:
    """Add the platform's variables around the user's.

    If the user sets a variable of the same name, the user's value is used.
    """
    taken = {variable["name"] for variable in user}
    return [
        *(variable for variable in before if variable["name"] not in taken),
        *user,
        *(variable for variable in after if variable["name"] not in taken),
    ]


def rewritten(variable: Mapping[str, Any], propagated: Mapping[str, str]) -> EnvVar:
    """Point a variable at the copies on the cluster, as in `ReplicaInput.propagated`."""
    source = variable.get("valueFrom")
    if not source:
        return dict(variable)
    pointed = {}
    for field, reference in source.items():
        pointed[field] = dict(reference)
        if field in _REFERENCES:
            original = reference["name"]
            path = f"{_REFERENCES[field]}/{original}"
            pointed[field]["name"] = propagated.get(path, original)
    return {**variable, "valueFrom": pointed}


def _without_nulls(value: Mapping[str, Any]) -> EnvVar:
    # A null field means an unset field, but an API server would reject some null
    # fields.
    return {
        name: _without_nulls(inner) if isinstance(inner, Mapping) else inner
        for name, inner in value.items()
        if inner is not None
    }


def _check_source(variable: Reader, where: str, findings: Findings) -> None:
    if not variable.has("valueFrom"):
        variable.text("value")
        return
    if variable.text("value"):
        findings.problem(where, "give value or valueFrom, not both")
    source = variable.object("valueFrom")
    given = [field for field in source.fields if source.has(field)]
    if len(given) != 1 or given[0] not in _SOURCES:
        findings.problem(
            where,
            f"valueFrom must have exactly one of {', '.join(_SOURCES)}; "
            f"has {', '.join(given) or 'none'}",
        )
        return
    reference = Reader(source.fields[given[0]], f"{where}, {given[0]}", findings)
    if given[0] == "fieldRef":
        reference.text("fieldPath", required=True)
        return
    reference.text("key", required=True)
    name = reference.text("name", required=True)
    if contract.is_made_by_platform(name):
        findings.problem(where, f"{given[0]} {name!r} {contract.PLATFORM_NAME_REFUSED}")
