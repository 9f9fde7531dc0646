"""Apply the definitions that charts bring in `crds/`, which Helm itself never changes (spec 2.10)."""

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from activities.cluster_objects.cluster_api import ClusterApi, Json, ObjectId
from activities.cluster_objects.deletion import poll_intervals
from activities.cluster_objects.kinds import CRD
from activities.heartbeat import Progress
from activities.observe import stack as judge
from api_types.errors import InvalidInput, TransientError
from api_types.payloads.limits import shortened

_CHANNEL, _BUNDLE = "gateway.networking.k8s.io/channel", "gateway.networking.k8s.io/bundle-version"
_EXPERIMENTAL = "experimental"
_NUMBERS = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})")
# A definition is established within a second, or its names are taken by another one.
_ESTABLISHED_SECONDS = 90.0
_AT_ONCE = 4
_NAMED_BYTES_MAX = 300


async def apply_definitions(
    cluster: ClusterApi, documents: Sequence[Json], report: Callable[[Progress], None]
) -> tuple[list[ObjectId], list[str]]:
    """Apply definitions, and wait until they are established; gives them, and what was left as it is.

    Raises InvalidInput where one would drop a version of which objects are stored, or take an API back to its standard channel.
    """
    wanted = [_stripped(document) for document in documents]
    found = await _read(cluster, [ObjectId.of(each) for each in wanted])
    problems = [problem for each in wanted if (live := found[ObjectId.of(each)]) and (problem := _problem(live, each))]
    if problems:
        raise InvalidInput("; ".join(problems))
    notes, applied = list[str](), list[ObjectId]()
    for each in wanted:
        target = ObjectId.of(each)
        if (live := found[target]) and (newer := _newer_bundle(live, each)):
            notes.append(f"{target.name} of the cluster is {newer}, newer than that of the chart, and stays")
            continue
        await cluster.apply(each)
        applied.append(target)
        report({"applied": len(applied), "of": len(wanted)})
    await until_established(cluster, [target for target in applied if target.kind == CRD])
    # What was just defined is served from now on.
    await cluster.resources(refresh=True)
    return applied, notes


async def differences(cluster: ClusterApi, documents: Sequence[Json]) -> list[str]:
    """Name the definitions that an apply would create or change; nothing is stored."""
    wanted = {ObjectId.of(document): _stripped(document) for document in documents}
    found = await _read(cluster, wanted)
    named = list[str]()
    for target, document in wanted.items():
        live = found[target]
        try:
            if live is None or (await cluster.apply(document, dry_run=True)).get("spec") != live.get("spec"):
                named.append(target.name)
        except InvalidInput:
            # Such as one without a version that objects are stored in.
            named.append(target.name)
    return named


async def until_established(cluster: ClusterApi, targets: Sequence[ObjectId]) -> None:
    """Wait until definitions are established. Raises a TransientError with what is not, at once if one is gone: a user deleted it."""
    deadline = asyncio.get_running_loop().time() + _ESTABLISHED_SECONDS
    async for _ in poll_intervals():
        found = await _read(cluster, targets)
        lagging = [f"{target.name}: {why}" for target in targets if (why := _lag(found[target]))]
        if not lagging:
            return
        if asyncio.get_running_loop().time() > deadline or None in found.values():
            raise TransientError(f"not established: {'; '.join(lagging[:5])}")


def _lag(found: Json | None) -> str:
    return judge.definition(found).why if found else judge.MISSING.why


async def _read(cluster: ClusterApi, targets: Iterable[ObjectId]) -> dict[ObjectId, Json | None]:
    turn = asyncio.Semaphore(_AT_ONCE)

    async def read(target: ObjectId) -> Json | None:
        async with turn:
            return await cluster.get(target)

    named = list(dict.fromkeys(targets))
    return dict(zip(named, await asyncio.gather(*map(read, named)), strict=True))


def _stripped(document: Json) -> Json:
    """Leave out what is no intent: a status, and the fields that code generators write without a value."""
    metadata = {key: value for key, value in document["metadata"].items() if key != "creationTimestamp"}
    return {**{key: value for key, value in document.items() if key != "status"}, "metadata": metadata}


def _problem(live: Json, wanted: Json) -> str:
    name = wanted["metadata"]["name"]
    kept = {version["name"] for version in _versions(wanted)}
    dropped = [version for version in (live.get("status") or {}).get("storedVersions") or () if version not in kept]
    if dropped and wanted["kind"] == CRD.kind:
        named = shortened(", ".join(dropped), _NAMED_BYTES_MAX)
        return f"{name}: objects of version {named} are stored, which the chart's definition does not have: migrate them first"
    if _note(live, _CHANNEL) == _EXPERIMENTAL and _note(wanted, _CHANNEL) not in ("", _EXPERIMENTAL):
        return f"{name}: the cluster has the experimental channel of the Gateway API, and the chart the {_note(wanted, _CHANNEL)} one"
    return ""


def _versions(document: Json) -> list[Any]:
    return list((document.get("spec") or {}).get("versions") or ())


def _note(document: Json, key: str) -> str:
    return str((document["metadata"].get("annotations") or {}).get(key) or "")[:_NAMED_BYTES_MAX]


def _newer_bundle(live: Json, wanted: Json) -> str:
    """Give the version of a live definition that is newer than the wanted one, empty if it is not."""
    here, there = _NUMBERS.match(_note(live, _BUNDLE)), _NUMBERS.match(_note(wanted, _BUNDLE))
    if not (here and there) or tuple(map(int, here.groups())) <= tuple(map(int, there.groups())):
        return ""
    return _note(live, _BUNDLE)


def bundle_version(definition: Json) -> str:
    """Give the version of the Gateway API that a definition is of; empty if it does not say."""
    return _note(definition, _BUNDLE)
