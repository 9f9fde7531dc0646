"""The pages of docs/reference that the code generates, apart from the settings."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import Any

import typer

from api_types import errors
from api_types.resources.kinds import KINDS, KindInfo
from api_types.validation.schema import json_schema
from client.failures import ExitCode, exit_code_of
from client.main import app
from fleet_client.advice import ADVICE
from fleet_client.errors import CommandFailed
from tests.docs.reference import source
from tests.front.conformance.differences import differences

_GENERATED = "This page is generated from the code by `make docs-reference`.\n"
CONDITIONS = {
    "Accepted": "the spec was accepted",
    "ArtifactReady": "every selected cluster has the weights",
    "BackendReady": "the serving stack of the cluster works",
    "CallsAccepted": "a worker refuses calls of this object; present only while that lasts",
    "CloudObjectsReady": "no cloud object of the cluster has a problem",
    "ClusterReady": "the control plane is connected to the cluster",
    "ClustersMatched": "the selector of the cache matches clusters",
    "ControllerReady": "the gateway of the control cluster is installed",
    "Deleting": "the deletion runs; the message names its step and what it waits for",
    "EndpointsResolved": "the selectors of the service match endpoints",
    "FeaturesAvailable": "the cluster lacks features; present only while one is missing",
    "ModelAccepted": "the replica's objects were accepted by its cluster",
    "ModelReady": "the engines of the replica are ready",
    "Ready": "the object does its work",
    "ReplicasReady": "all replicas are Ready",
    "ReplicasScheduled": "all replicas have a cluster",
    "RetriesReady": "the gateway retries as the service requests",
    "RevisionPinned": "all clusters stage one revision of the weights",
    "RoutingReady": "requests reach the object",
    "ScaledByOne": "one autoscaler sets the count; present only when several did",
    "SchedulingDisabled": "the cluster is cordoned or drained",
    "Serving": "pods of the replica answer requests",
    "SignalsDelivered": "a receiver refuses messages; present only while that lasts",
    "SpecAccepted": "the spec was accepted",
    "TimeoutsReady": "the gateway applies the timeouts that the service requests",
}
"""The meaning of each condition type when it is True."""


def _cell(text: str) -> str:
    plain = " ".join(text.split()).replace("|", "\\|")
    return plain.replace("<", "&lt;") if "`" not in plain else plain


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(_cell(cell) for cell in row)} |\n" for row in lines)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


# Kinds


def _type_of(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type_of(each) for each in schema["anyOf"])
    if schema.get("enum"):
        return ", ".join(_code(str(each)) for each in schema["enum"])
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {_type_of(schema.get('items', {}))}"
    values = schema.get("additionalProperties")
    if kind == "object" and isinstance(values, Mapping):
        return f"map to {_type_of(values)}"
    return kind


def _bounds_of(schema: Mapping[str, Any]) -> str:
    least = schema.get("minimum", schema.get("minItems", schema.get("minLength")))
    most = schema.get("maximum", schema.get("maxItems", schema.get("maxLength")))
    unit = " characters" if "maxLength" in schema or "minLength" in schema else ""
    unit = " items" if "maxItems" in schema or "minItems" in schema else unit
    if least is not None and most is not None:
        return f"{least} to {most}{unit}"
    if least is not None:
        return f"at least {least}{unit}"
    return f"at most {most}{unit}" if most is not None else ""


def _fields(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, ...]]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        items = field.get("items")
        default = field.get("default")
        shown = "required" if name in required else ""
        if default not in (None, "", [], {}):
            shown = _code(
                str(default).lower() if isinstance(default, bool) else str(default)
            )
        yield (
            _code(here),
            _type_of(field),
            shown,
            _bounds_of(field),
            field.get("description", ""),
        )
        yield from _fields(field, here)
        if isinstance(items, Mapping):
            yield from _fields(items, f"{here}[]")


def kind_page(info: KindInfo) -> str:
    """Return the page with every field of a kind."""
    schema = json_schema(info.kind)
    writer = f"the control plane writes it for a {info.written_instead}"
    facts = [
        ("apiVersion", _code(info.api_version)),
        ("Names for commands", f"`{info.plural}`, `{info.singular}`, `{info.short}`"),
        ("Scope", "namespace" if info.namespaced else "fleet"),
        ("Written by", writer if info.written_instead else "users"),
        ("Columns of `get`", ", ".join(column.title for column in info.columns)),
    ]
    text = f"# {info.kind}\n\n{schema.get('description', '')}\n\n{_GENERATED}\n"
    text += _table(("Property", "Value"), [row for row in facts if row[1]])
    for part in ("spec", "status"):
        fields = schema["properties"].get(part)
        if fields:
            head = ("Field", "Type", "Default", "Bounds", "Meaning")
            text += f"\n## {part}\n\n{_table(head, _fields(fields, part))}"
    return text


# Conditions and events


def _example_of(advice: str) -> str:
    """Return a next step with an example for each value that a message inserts."""
    return (
        advice.replace("{namespace}", "ml-team")
        .replace("{command}", "KIND/NAME")
        .replace("{name}", "NAME")
    )


def conditions_page() -> str:
    """Return the page with the conditions of each kind, their reasons and the next step."""
    text = (
        f"# Conditions\n\n{_GENERATED}\n`modelplane describe KIND/NAME` shows the conditions of an "
        "object. Each has a status, a reason for\nprograms and a message for people.\n\n## Types\n\n"
    )
    types = source.condition_types()
    rows = []
    for each, meaning in CONDITIONS.items():
        kinds = {
            kind for kind in types if each in types[kind]
        } or source.kinds_that_name(each)
        rows.append((_code(each), meaning, ", ".join(sorted(kinds))))
    text += _table(("Type", "Meaning when True", "Kinds"), rows)
    for kind, found in groupby(source.reasons(), lambda one: one.kind):
        by_reason: dict[str, list[source.Reason]] = {}
        for one in found:
            by_reason.setdefault(one.reason, []).append(one)
        advice = ADVICE.get(kind, {})
        for reason in sorted({*advice, *by_reason}):
            by_reason.setdefault(reason, [])
        reasons = [
            (
                _code(reason),
                ", ".join(
                    sorted({_code(one.type) for one in by_reason[reason]} - {""})
                ),
                ", ".join(sorted({one.status for one in by_reason[reason]} - {""})),
                _example_of(advice.get(reason, "")),
            )
            for reason in sorted(by_reason)
        ]
        title = kind[0].upper() + kind[1:]
        text += f"\n## {title}\n\n" + _table(
            ("Reason", "Type", "Status", "Next step"), reasons
        )
    return text


def _heading(event: source.Event) -> tuple[str, str]:
    return event.type, event.reason


def events_page() -> str:
    """Return the page with the events of each kind."""
    text = (
        f"# Events\n\n{_GENERATED}\n`modelplane events KIND/NAME` lists the last events of an object. "
        "A Warning may need a person. Braces\nand `…` stand for values. An event whose whole message "
        "varies has none here.\n"
    )
    for kind, found in groupby(source.events(), lambda one: one.kind):
        rows = []
        for (sort, reason), each in groupby(found, _heading):
            messages = [
                _code(one.message.replace("`", "'")) for one in each if one.message
            ]
            rows.append((_code(reason), sort, "; ".join(messages)))
        title = kind[0].upper() + kind[1:]
        text += f"\n## {title}\n\n" + _table(
            ("Reason", "Type", "Message"), sorted(rows)
        )
    return text


# Metrics, exit codes, errors


def metrics_page() -> str:
    """Return the page with the metrics of the programs."""
    rows = [
        (_code(one.name), one.sort, ", ".join(map(_code, one.labels)), one.meaning)
        for one in source.metrics()
    ]
    return (
        f"# Metrics\n\n{_GENERATED}\nA worker serves `/metrics` in the text format of Prometheus. It has "
        "the metrics of this table, those\nof the Temporal SDK (`temporal_*`, which Temporal "
        "documents), and those of the Python process.\n"
        f"Engines have metrics of their own, at the path of their [profile](engine-profiles.md).\n\n"
        f"{_table(('Metric', 'Type', 'Labels', 'Meaning'), rows)}"
    )


def _subclasses(kind: type) -> Iterator[type]:
    found: list[type] = kind.__subclasses__()
    for each in found:
        yield each
        yield from _subclasses(each)


def _summary(kind: type) -> str:
    return (kind.__doc__ or "").partition("\n\n")[0]


def exit_codes_page() -> str:
    """Return the page with the exit codes of `modelplane`."""
    causes: dict[ExitCode, list[str]] = {
        ExitCode.DONE: ["Done."],
        ExitCode.FAILED: ["Another failure, which the message names."],
    }
    for kind in _subclasses(CommandFailed):
        if kind.__module__ == CommandFailed.__module__:
            failure = kind("", next_step="")
            causes.setdefault(exit_code_of(failure), []).append(_summary(kind))
    rows = [
        (_code(str(int(code))), " ".join(dict.fromkeys(causes[code])))
        for code in sorted(causes)
    ]
    rows.append(("`130`", "Interrupted with Ctrl-C."))
    return (
        f"# Exit codes\n\n{_GENERATED}\nAn error is on standard error: the event, details, and the next "
        "step. With several objects, the\nhighest code counts.\n\n"
        f"{_table(('Code', 'Cause'), rows)}"
    )


def errors_page() -> str:
    """Return the page with the failure types of activities."""
    branches = (
        (errors.PermanentError, "Until the spec changes"),
        (errors.ActionRequiredError, "Until a person acts"),
        (errors.TransientError, "May succeed later"),
    )
    text = (
        f"# Errors\n\n{_GENERATED}\nThe failure type of an activity, as the Temporal UI, messages and "
        "events show it. The type says\nwhether a retry can help. `modelplane retry KIND/NAME` makes the "
        "next attempt at once.\n"
    )
    for branch, title in branches:
        rows = [(_code(each.__name__), _summary(each)) for each in _subclasses(branch)]
        text += (
            f"\n## {title}\n\n{_summary(branch)}\n\n{_table(('Type', 'Meaning'), rows)}"
        )
    return text


# Commands


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    context = command.make_context(path, [], resilient_parsing=True)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if getattr(found, "hidden", False):
            continue
        if hasattr(found, "list_commands"):
            yield from _commands(found, f"{path} {name}")
        else:
            yield f"{path} {name}", found


def cli_page() -> str:
    """Return the page with each command, its arguments and its options."""
    root = typer.main.get_command(app)
    text = (
        f"# Commands\n\n{_GENERATED}\n[Work with the command line](../how-to/command-line.md) shows the "
        "commands at work, and [exit codes](exit-codes.md)\nlists how they end.\n"
    )
    for path, command in sorted(_commands(root, "modelplane")):
        words, options = [], []
        for parameter in command.params:
            described = getattr(parameter, "help", None) or ""
            if parameter.param_type_name == "argument":
                words.append(str(parameter.name).upper())
                options.append((_code(words[-1]), described))
            elif not getattr(parameter, "hidden", False) and parameter.name != "help":
                names = [*parameter.opts, *parameter.secondary_opts]
                options.append((", ".join(map(_code, names)), described))
        usage = " ".join([path, "[OPTIONS]", *words])
        help_text = "\n\n".join(
            " ".join(part.split())
            for part in (command.help or "").replace("\f", "\n\n").split("\n\n")
            if not part.lstrip().startswith("\b")
        )
        text += f"\n## {path}\n\n```text\n{usage}\n```\n\n{help_text}\n"
        if options:
            text += f"\n{_table(('Argument or option', 'Meaning'), options)}"
    return text


def api_differences_page() -> str:
    """Return the page with the differences of the front to an API server."""
    text = (
        "# Differences to an API server\n\n"
        "`make docs-reference` writes this page from "
        "`tests/front/conformance/differences.yaml`.\n"
        "A test sends the same requests to the front and to a kube-apiserver that has the "
        "same kinds as custom\nresources. An answer that differs in another way fails the "
        "test, and so does a row without a difference.\n"
        "The wording of messages is not compared.\n\n"
        "Four fields are dropped without an error: `generateName` once the name is made, labels "
        "with the value `null`,\n`selfLink`, and a `creationTimestamp` that is no time. No other "
        "difference loses data without an error.\n\n"
    )
    head = ("Request", "Custom resource of an API server", "Front", "Reason")
    rows = (
        (each.request, each.kubernetes, each.front, each.reason)
        for each in differences()
    )
    return text + _table(head, rows)


PAGES: Mapping[str, Callable[[], str]] = {
    **{
        f"docs/reference/kinds/{info.singular}.md": partial(kind_page, info)
        for info in KINDS
    },
    "docs/reference/conditions.md": conditions_page,
    "docs/reference/events.md": events_page,
    "docs/reference/metrics.md": metrics_page,
    "docs/reference/exit-codes.md": exit_codes_page,
    "docs/reference/errors.md": errors_page,
    "docs/reference/commands.md": cli_page,
    "docs/reference/api-differences.md": api_differences_page,
}
