"""Delete unused definitions, which Helm leaves behind when it uninstalls charts."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from activities.clients.helm.port import HelmPort
from activities.cluster_objects.cluster_api import (
    ClusterApi,
    GroupVersionKind,
    Json,
    ObjectId,
    Selection,
)
from activities.cluster_objects.deletion import poll_intervals, remaining_object
from activities.cluster_objects.kinds import CRD
from activities.heartbeat import Progress
from activities.observe.digest import was_applied
from activities.stack.releases import definitions_of, release_of
from api_types.errors import StackMissing
from api_types.messages.cluster_work import RemainingObject
from api_types.messages.stack import (
    DEFINITIONS_KEPT_MAX,
    PurgedDefinitions,
    PurgeDefinitions,
)

_SHOWN_MAX = 20
_NAMED_MAX = 3
_NAME_MAX = 253


async def purge(
    cluster: ClusterApi,
    helm: HelmPort,
    order: PurgeDefinitions,
    report: Callable[[Progress], None],
) -> PurgedDefinitions:
    """Delete definitions until only kept ones are left, or until the time limit.

    A definition that was just applied is kept until the API server serves it, because
    its objects cannot be listed before. If an object is created between the check and
    the deletion, it is deleted with its definition: the API offers no precondition for
    that.
    """
    deadline = asyncio.get_running_loop().time() + order.wait_seconds
    documents = await definitions_of(helm, order.releases)
    targets = [
        target
        for target in dict.fromkeys(map(ObjectId.of, documents))
        if target.kind == CRD
    ]
    async for _ in poll_intervals():
        is_last = asyncio.get_running_loop().time() >= deadline
        kept, remaining = list[RemainingObject](), list[RemainingObject]()
        for target in targets:
            if str(target) in order.skipped:
                continue
            found = await cluster.get(target)
            if found is None:
                continue
            if found["metadata"].get("deletionTimestamp"):
                remaining.append(remaining_object(found))
            elif why := await _use(cluster, found):
                left = RemainingObject(id=str(target), why=why.text)
                (kept if why.stays or is_last else remaining).append(left)
            else:
                await cluster.delete(
                    target, uid=found["metadata"]["uid"], propagation="Background"
                )
                remaining.append(remaining_object(found))
        if not remaining or is_last:
            return PurgedDefinitions(
                kept=kept[:DEFINITIONS_KEPT_MAX], remaining=remaining[:_SHOWN_MAX]
            )
        report({"waitingFor": [str(item) for item in remaining[:_SHOWN_MAX]]})
    raise AssertionError("poll_intervals never ends")


class _Why(NamedTuple):
    """Why a definition is not deleted.

    `stays` is False if the reason may pass within seconds.
    """

    text: str
    stays: bool = True


async def _use(cluster: ClusterApi, definition: Json) -> _Why | None:
    """Return why a definition is not deleted, or None if nothing uses it."""
    namespace, name = release_of(definition)
    if name:
        return _Why(f"it belongs to release {namespace}/{name}")
    if not was_applied(definition):
        return _Why("it was not applied for this stack")
    spec = definition["spec"]
    served = next(
        (version["name"] for version in spec["versions"] if version["served"]), ""
    )
    if not served:
        return _Why("no version of it is served, so its objects cannot be listed")
    kind = GroupVersionKind(f"{spec['group']}/{served}", spec["names"]["kind"])
    try:
        items = (await cluster.list(Selection(kind, metadata_only=True))).items
    except StackMissing as error:
        return _Why(
            f"its objects cannot be listed: {error.message}",
            stays=_is_refused(definition),
        )
    if not items:
        return None
    return _Why(f"its objects would be deleted with it: {_named(items)}")


def _is_refused(definition: Json) -> bool:
    """Return True if another definition has the names, so that this one is not served."""
    reported = (definition.get("status") or {}).get("conditions") or []
    return any(
        each.get("type") == "NamesAccepted" and each.get("status") == "False"
        for each in reported
    )


def _named(items: Sequence[Json]) -> str:
    places = [item["metadata"] for item in items[:_NAMED_MAX]]
    names = ", ".join(
        "/".join(filter(None, (place.get("namespace"), place["name"])))[:_NAME_MAX]
        for place in places
    )
    return names + (
        f" and {len(items) - _NAMED_MAX} more" if len(items) > _NAMED_MAX else ""
    )
