"""Completion of kinds, names, namespaces, clusters, pools, fields and paths in shells.

The parser completes verbs and options. This module adds the values, by the name of a
parameter. A shell asks at each TAB, so a fleet that does not answer in time, or an
incomplete command line, means no values and no message.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from typer._click.shell_completion import CompletionItem

from client.parsing.global_options import use_global_options

_SECONDS = 5.0
_CLUSTER = "InferenceCluster"

Complete = Callable[[Any, str], Iterable[str]]


def with_completion(command: Any) -> Any:
    """Return a command whose parameters complete the values that this module knows."""
    for below in getattr(command, "commands", {}).values():
        with_completion(below)
    for parameter in command.params:
        complete = _PARAMETERS.get((command.name, parameter.name)) or _PARAMETERS.get(
            ("", parameter.name)
        )
        if complete:
            parameter.shell_complete = partial(_items, complete)
    return command


def _items(complete: Complete, context: Any, incomplete: str) -> list[Any]:
    from fleet_client.errors import CommandFailed  # noqa: PLC0415 - slow to import

    try:
        use_global_options(context.find_root().params)
        found = sorted(set(complete(context, incomplete)))
    except (CommandFailed, TimeoutError):
        return []
    return [CompletionItem(value) for value in found if value.startswith(incomplete)]


def _objects(context: Any, incomplete: str) -> Iterable[str]:
    """Complete `md`, `md/qwen`, and `qwen` after `md`."""
    from api_types.resources.kinds import SERVED  # noqa: PLC0415 - slow to import
    from fleet_client.refs.targets import kind_named  # noqa: PLC0415 - as above

    kind, slash, _ = incomplete.partition("/")
    if slash:
        return [f"{kind}/{name}" for name in _names(context, kind_named(kind))]
    before = _words_before(context)
    if before and "/" not in before[0]:
        return set(_names(context, kind_named(before[0]))) - set(before[1:])
    return [info.plural for info in SERVED] + [
        f"{info.short}/" for info in SERVED if incomplete == info.short
    ]


def _words_before(context: Any) -> Sequence[str]:
    found = context.params.get("objects") or context.params.get("words") or ()
    return [word for word in found if "=" not in word]


def _fields(context: Any, incomplete: str) -> Iterable[str]:
    """Complete `md.spec.replicas`, beside kinds and objects."""
    from api_types.validation.schema import json_schema  # noqa: PLC0415 - slow to import
    from client.output.schema_text import fields_at  # noqa: PLC0415 - as above
    from fleet_client.refs.targets import kind_named  # noqa: PLC0415 - as above

    if "." not in incomplete:
        return _objects(context, incomplete)
    *path, _ = incomplete.split(".")
    schema = json_schema(kind_named(path[0]).kind)
    return [".".join((*path, name)) for name in fields_at(schema, path[1:])]


def _engines(context: Any, _incomplete: str) -> Iterable[str]:
    """Complete `md/qwen` and `mr/qwen-1414d327`."""
    from api_types.resources.kinds import BY_KIND  # noqa: PLC0415 - slow to import

    kinds = [BY_KIND[kind] for kind in ("ModelDeployment", "ModelReplica")]
    return [f"{kind.short}/{name}" for kind in kinds for name in _names(context, kind)]


def _kinds(_context: Any, _incomplete: str) -> Iterable[str]:
    from api_types.resources.kinds import KINDS  # noqa: PLC0415 - slow to import

    return [info.plural for info in KINDS]


def _paths(context: Any, _incomplete: str) -> Iterable[str]:
    """Complete the JSONPaths of the columns of the listed kind."""
    from api_types.resources.kinds import columns_of  # noqa: PLC0415 - slow to import
    from fleet_client.refs.targets import kinds_and_names  # noqa: PLC0415 - as above

    paths = [".metadata.name", ".metadata.namespace", ".metadata.creationTimestamp"]
    before = _words_before(context)
    for kind, _ in kinds_and_names(before) if before else ():
        paths += [path for column in columns_of(kind) for path in column.paths]
    return paths


def _of_kind(kind: str) -> Complete:
    from_kind = kind

    def complete(context: Any, _incomplete: str) -> Iterable[str]:
        from api_types.resources.kinds import BY_KIND  # noqa: PLC0415 - slow to import

        return _names(context, BY_KIND[from_kind])

    return complete


def _namespaces(_context: Any, _incomplete: str) -> Iterable[str]:
    from api_types.resources.kinds import BY_KIND  # noqa: PLC0415 - slow to import

    kinds = ("ModelDeployment", "ModelService", "ModelCache")
    found = [_listed(BY_KIND[kind], None) for kind in kinds]
    return {one.target.namespace for objects in found for one in objects}


def _pools(_context: Any, _incomplete: str) -> Iterable[str]:
    """Complete `CLUSTER/POOL`."""
    from api_types.resources.kinds import BY_KIND  # noqa: PLC0415 - slow to import

    return [
        f"{one.target.name}/{pool['name']}"
        for one in _listed(BY_KIND[_CLUSTER], None)
        for pool in (one.tree.get("spec") or {}).get("nodePools") or ()
    ]


def _names(context: Any, kind: Any) -> Sequence[str]:
    from fleet_client.refs.targets import DEFAULT_NAMESPACE  # noqa: PLC0415 - slow to import

    namespace = context.params.get("namespace") or DEFAULT_NAMESPACE
    return [one.target.name for one in _listed(kind, namespace)]


def _listed(kind: Any, namespace: str | None) -> Sequence[Any]:
    from fleet_client.configuration import load_settings  # noqa: PLC0415 - slow to import
    from fleet_client.connection import fleet_objects  # noqa: PLC0415 - as above

    async def read() -> Sequence[Any]:
        async with asyncio.timeout(_SECONDS), fleet_objects(load_settings()) as plane:
            return await plane.list(kind, namespace)

    return asyncio.run(read())


# The completion of parameters by command and name. Command "" stands for the others.
_PARAMETERS: dict[tuple[str, str], Complete] = {
    ("", "objects"): _objects,
    ("", "words"): _objects,
    ("explain", "objects"): _fields,
    ("", "namespace"): _namespaces,
    ("", "cluster"): _of_kind(_CLUSTER),
    ("force-finalizer", "cluster"): _objects,
    ("plan", "drain"): _of_kind(_CLUSTER),
    ("plan", "delete_pool"): _pools,
    ("schema", "kind"): _kinds,
    ("logs", "word"): _engines,
    ("exec", "word"): _engines,
    ("port-forward", "word"): _engines,
    ("", "sort_by"): _paths,
    ("chat", "service"): _of_kind("ModelService"),
    ("curl", "service"): _of_kind("ModelService"),
    ("shift", "name"): _of_kind("ModelService"),
}
