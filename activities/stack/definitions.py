"""Apply the definitions in the `crds/` directory of charts, which Helm never upgrades."""

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from activities.cluster_objects.cluster_api import ClusterApi, Json, ObjectId
from activities.cluster_objects.deletion import poll_intervals
from activities.cluster_objects.kinds import CRD
from activities.heartbeat import Progress
from activities.observe import stack as judge
from activities.stack.existing import is_foreign
from api_types.errors import InvalidInput, TransientError
from api_types.payloads.limits import shortened

_CHANNEL, _BUNDLE = (
    "gateway.networking.k8s.io/channel",
    "gateway.networking.k8s.io/bundle-version",
)
_BUNDLES = (_BUNDLE, "inference.networking.k8s.io/bundle-version")
_EXPERIMENTAL = "experimental"
_NUMBERS = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})")
# A definition is established within a second, unless another definition has its names.
_ESTABLISHED_SECONDS = 90.0
_AT_ONCE = 4
_OF_OTHERS = "has definitions of others, which are not changed"
_NAMED_BYTES_MAX = 300


async def apply_definitions(
    cluster: ClusterApi, documents: Sequence[Json], report: Callable[[Progress], None]
) -> tuple[list[ObjectId], list[str]]:
    """Apply definitions, and wait until they are established.

    Returns the applied definitions, and notes about unchanged ones. Definitions that
    others installed are left as they are, and the missing ones of the same API are
    added. Raises InvalidInput if a definition would drop a version in which objects are
    stored, or would move the Gateway API from its experimental to its standard channel.
    """
    wanted = [_stripped(document) for document in documents]
    found = await _read(cluster, [ObjectId.of(each) for each in wanted])
    foreign = {target for target, live in found.items() if live and is_foreign(live)}
    groups = dict.fromkeys(
        _group(each) for each in wanted if ObjectId.of(each) in foreign
    )
    notes, applied = [f"{group} {_OF_OTHERS}" for group in groups], list[ObjectId]()
    wanted = [each for each in wanted if ObjectId.of(each) not in foreign]
    existing = [(found[ObjectId.of(each)], each) for each in wanted]
    problems = [change_problem(live, each) for live, each in existing if live]
    if any(problems):
        raise InvalidInput("; ".join(filter(None, problems)))
    for each in wanted:
        target = ObjectId.of(each)
        live = found[target]
        if live and (note := newer_note(live, each)):
            notes.append(note)
            continue
        await cluster.apply(each)
        applied.append(target)
        report({"applied": len(applied), "of": len(wanted)})
    await until_established(
        cluster, [target for target in applied if target.kind == CRD]
    )
    # The new kinds are served from now on.
    await cluster.resources(refresh=True)
    return applied, notes


def _group(definition: Json) -> str:
    """Return the API group of a definition, or the name of another object."""
    spec = definition.get("spec") or {}
    return str(spec.get("group") or definition["metadata"]["name"])


async def differences(cluster: ClusterApi, documents: Sequence[Json]) -> list[str]:
    """Return the definitions that an apply would create or change, from a dry run."""
    wanted = {ObjectId.of(document): _stripped(document) for document in documents}
    found = await _read(cluster, wanted)
    named = list[str]()
    for target, document in wanted.items():
        live = found[target]
        try:
            if live is not None:
                applied = await cluster.apply(document, dry_run=True)
                if applied.get("spec") == live.get("spec"):
                    continue
            named.append(target.name)
        except InvalidInput:
            # For example, a document without a version in which objects are stored.
            named.append(target.name)
    return named


async def until_established(cluster: ClusterApi, targets: Sequence[ObjectId]) -> None:
    """Wait until definitions are established.

    Raises a TransientError that names the remaining ones. It is raised at once if one
    does not exist because a user deleted it.
    """
    deadline = asyncio.get_running_loop().time() + _ESTABLISHED_SECONDS
    async for _ in poll_intervals():
        found = await _read(cluster, targets)
        lags = {target.name: _lag(found[target]) for target in targets}
        lagging = [f"{name}: {why}" for name, why in lags.items() if why]
        if not lagging:
            return
        if asyncio.get_running_loop().time() > deadline or None in found.values():
            raise TransientError(f"not established: {'; '.join(lagging[:5])}")


def _lag(found: Json | None) -> str:
    return judge.definition(found).why if found else judge.MISSING.why


async def _read(
    cluster: ClusterApi, targets: Iterable[ObjectId]
) -> dict[ObjectId, Json | None]:
    turn = asyncio.Semaphore(_AT_ONCE)

    async def read(target: ObjectId) -> Json | None:
        async with turn:
            return await cluster.get(target)

    named = list(dict.fromkeys(targets))
    return dict(zip(named, await asyncio.gather(*map(read, named)), strict=True))


def _stripped(document: Json) -> Json:
    """Remove the status, and fields that code generators write without a value."""
    metadata = {
        key: value
        for key, value in document["metadata"].items()
        if key != "creationTimestamp"
    }
    return {
        **{key: value for key, value in document.items() if key != "status"},
        "metadata": metadata,
    }


def change_problem(live: Json, wanted: Json) -> str:
    """Return why a definition must not replace the live one, or an empty string."""
    name = wanted["metadata"]["name"]
    kept = {version["name"] for version in _versions(wanted)}
    dropped = [
        version
        for version in (live.get("status") or {}).get("storedVersions") or ()
        if version not in kept
    ]
    if dropped and wanted["kind"] == CRD.kind:
        named = shortened(", ".join(dropped), _NAMED_BYTES_MAX)
        return (
            f"{name}: objects of version {named} are stored, which the new definition "
            "does not have: migrate them first"
        )
    channel = _note(wanted, _CHANNEL)
    if _note(live, _CHANNEL) == _EXPERIMENTAL and channel not in ("", _EXPERIMENTAL):
        return (
            f"{name}: the cluster has the experimental channel of the Gateway API, and the "
            f"chart has the {channel} one"
        )
    return ""


def _versions(document: Json) -> list[Any]:
    return list((document.get("spec") or {}).get("versions") or ())


def _note(document: Json, key: str) -> str:
    return str((document["metadata"].get("annotations") or {}).get(key) or "")[
        :_NAMED_BYTES_MAX
    ]


def newer_note(live: Json, wanted: Json) -> str:
    """Return a note if the live definition is of a newer release, or an empty string.

    A newer definition stays, because objects may use what only it has.
    """
    for bundle in _BUNDLES:
        here, there = _numbers(_note(live, bundle)), _numbers(_note(wanted, bundle))
        if here and there and here > there:
            name = wanted["metadata"]["name"]
            return (
                f"{name} is not changed: the cluster has {_note(live, bundle)}, which is "
                f"newer than {_note(wanted, bundle)}"
            )
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    found = _NUMBERS.match(version)
    return tuple(map(int, found.groups())) if found else ()


def bundle_version(definition: Json) -> str:
    """Return the Gateway API version that a definition states, or an empty string."""
    return _note(definition, _BUNDLE)
