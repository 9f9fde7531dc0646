"""Copies of Secrets and ConfigMaps that several replicas or Jobs of a cluster share.

Values are written from the secret store to the cluster and not stored in between. Each
user of a copy has an annotation on it, and every write names the resource version that
was read. Removing the last annotation deletes the copy. So no worker can delete a copy
that another user needs.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from activities.cluster_objects.cluster_api import (
    ClusterApi,
    GroupVersionKind,
    Json,
    ObjectId,
    Selection,
)
from activities.cluster_objects.deletion import poll_intervals
from activities.cluster_objects.ownership import owner_of
from activities.render.inputs.settings import RenderSettings
from activities.render.objects import components
from activities.render.objects.propagation import (
    CONFIG_MAP,
    SECRET,
    PropagatedCopy,
    PullSecret,
    pull_secret_copy,
)
from activities.secrets.copy_data import read_copy_data
from activities.secrets.store import SecretMissing, SecretReader
from api_types import labels
from api_types.errors import CredentialsInvalid, NameConflict
from api_types.pins import apiversions

_KINDS = (SECRET, CONFIG_MAP)
REASON_MISSING = SecretMissing.__name__


async def pull_secret_copies(
    store: SecretReader, namespace: str, settings: RenderSettings
) -> tuple[list[PropagatedCopy], dict[str, str]]:
    """Return the copies of the platform's pull secrets for `namespace`, and problems.

    The problems are the reasons, by inventory key, why a secret cannot be copied.
    """
    copies: list[PropagatedCopy] = []
    problems: dict[str, str] = {}
    for wanted in map(PullSecret, settings.pull_secrets):
        info = await store.describe(labels.SYSTEM_NAMESPACE, wanted.name)
        secret_type = info.type if info and info.kind == SECRET else None
        if problem := wanted.problem(secret_type):
            problems[wanted.inventory_key] = problem
        elif info:
            copies.append(pull_secret_copy(wanted, info.type, namespace, settings))
    return copies, problems


async def write_copy(
    cluster: ClusterApi, store: SecretReader, copy: PropagatedCopy, user: str, uid: str
) -> bool:
    """Write one copy from its source, and annotate it with its user.

    `user` is the name of the replica's workload. Returns False if nothing changed.
    Raises CredentialsInvalid with reason SecretMissing if the source was deleted in the
    meantime, and NameConflict if the object has another owner.
    """
    # Read the version before the data. If the source changes in between, the copy has
    # the older version with newer data, and is written again.
    version = await _version(store, copy)
    manifest = _with_metadata(
        {**copy.manifest, **await _data(store, copy)}, {labels.SOURCE_VERSION: version}
    )
    target = ObjectId.of(manifest)
    async for _ in poll_intervals():
        live = await cluster.get(target)
        if live is None:
            if await cluster.create(_with_metadata(manifest, {_user_key(user): uid})):
                return True
            continue
        if owner_of(live) != owner_of(manifest):
            raise NameConflict(
                f"{target} exists already and belongs to {owner_of(live)}; delete it there"
            )
        if live["metadata"].get("deletionTimestamp"):
            continue
        users = {**_users(live), _user_key(user): uid}
        if _is_equal(manifest, live) and users == _users(live):
            return False
        metadata = live["metadata"]
        if live.get("type") != manifest.get("type"):
            # The type of a Secret is immutable; running pods have read what they need.
            await cluster.delete(
                target,
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
                propagation="Background",
            )
            continue
        if await cluster.replace(
            _with_metadata(
                manifest, users, resource_version=metadata["resourceVersion"]
            )
        ):
            return True
    raise AssertionError("poll_intervals never ends")


async def release_copy(cluster: ClusterApi, target: ObjectId, user: str) -> bool:
    """Remove a replica's annotation from a copy, and delete the copy with the last one.

    Returns False if the object is not a copy that Modelplane made.
    """
    async for _ in poll_intervals():
        live = await cluster.get(target)
        if live is None:
            return True
        if not _is_ours(live):
            return False
        if live["metadata"].get("deletionTimestamp"):
            continue
        metadata = live["metadata"]
        others = {
            key: uid for key, uid in _users(live).items() if key != _user_key(user)
        }
        if not others:
            await cluster.delete(
                target,
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
                propagation="Background",
            )
        elif others == _users(live) or await cluster.replace(_with_users(live, others)):
            return True
    raise AssertionError("poll_intervals never ends")


async def copies_of(cluster: ClusterApi, namespace: str, user: str) -> list[ObjectId]:
    """List the copies that carry a replica's annotation."""
    selector = (
        f"{labels.MANAGED_BY}={labels.MANAGED_BY_VALUE},"
        f"{labels.COMPONENT}={components.SECRET}"
    )
    found: list[ObjectId] = []
    for name in _KINDS:
        listed = await cluster.list(
            Selection(
                GroupVersionKind(apiversions.CORE, name),
                namespace,
                selector,
                metadata_only=True,
            )
        )
        found += [
            ObjectId.of(item)
            for item in listed.items
            if _user_key(user) in _users(item)
        ]
    return found


async def release_all(
    cluster: ClusterApi, targets: Iterable[ObjectId], user: str
) -> list[str]:
    """Release copies. Returns why some were skipped."""
    return [
        f"{target} is not a copy that Modelplane made"
        for target in targets
        if not await release_copy(cluster, target, user)
    ]


async def _version(store: SecretReader, copy: PropagatedCopy) -> str:
    info = await store.describe(copy.source_namespace, copy.source_name)
    return info.version if info else ""


async def _data(store: SecretReader, copy: PropagatedCopy) -> Json:
    try:
        return await read_copy_data(store, copy)
    except SecretMissing as missing:
        raise CredentialsInvalid(str(missing), REASON_MISSING) from missing


def _user_key(user: str) -> str:
    return f"{labels.USER_PREFIX}{user}"


def _users(item: Json) -> dict[str, str]:
    annotations = item["metadata"].get("annotations") or {}
    return {
        key: value
        for key, value in annotations.items()
        if key.startswith(labels.USER_PREFIX)
    }


def _with_metadata(
    manifest: Json, users: Mapping[str, str], resource_version: str = ""
) -> Json:
    metadata = {
        **manifest["metadata"],
        "annotations": {**manifest["metadata"]["annotations"], **users},
    }
    if resource_version:
        metadata["resourceVersion"] = resource_version
    return {**manifest, "metadata": metadata}


def _with_users(live: Json, users: Mapping[str, str]) -> Json:
    annotations = {
        key: value
        for key, value in live["metadata"]["annotations"].items()
        if not key.startswith(labels.USER_PREFIX)
    }
    return {
        **live,
        "metadata": {**live["metadata"], "annotations": {**annotations, **users}},
    }


def _is_equal(manifest: Json, live: Json) -> bool:
    def content(item: Json) -> list[Any]:
        return [item.get("type"), item.get("data") or {}, item.get("binaryData") or {}]

    wanted, stored = manifest["metadata"], live["metadata"]
    for part in ("labels", "annotations"):
        present = stored.get(part) or {}
        if any(present.get(key) != value for key, value in wanted[part].items()):
            return False
    return content(manifest) == content(live)


def _is_ours(item: Json) -> bool:
    return (
        bool(owner_of(item).uid)
        and (item["metadata"].get("labels") or {}).get(labels.COMPONENT)
        == components.SECRET
    )
