"""Notifications about changed Secrets.

The store is real, and Temporal is a fake.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.clients.secrets.directory import SecretDirectory
from activities.cluster_objects.cluster_api import GroupVersionKind, Json
from activities.cluster_objects.ownership import ObjectOwner
from activities.clusters import rotated_secrets
from activities.clusters.rotated_secrets import RotationNotifier, SourceVersions
from activities.clusters.watch.copy_index import CopyIndex, SourceKey, read_copy
from activities.secrets.store import SecretInfo, SecretKind, StoredSecret
from activities.watching.reflector import NamespacedName
from api_types import labels
from api_types.errors import PermissionDenied
from tests.activities.clouds.lives.virtual_time import run
from tests.random_cases import generator

ONE, TWO = (
    ObjectOwner("ModelReplica", "ml", "chat-eu-0", "u1"),
    ObjectOwner("ModelReplica", "ml", "chat-eu-1", "u2"),
)
CACHE = ObjectOwner("ModelCache", "ml", "qwen", "u3")
SECRET = GroupVersionKind("v1", "Secret")


def a_copy(
    version: str,
    users: Mapping[str, str],
    *,
    kind: str = "Secret",
    name: str = "hub",
    **notes: str,
) -> Json:
    annotations = {
        labels.OWNER_KIND: kind,
        labels.OWNER_NAMESPACE: "ml",
        labels.OWNER_NAME: name,
        labels.OWNER_UID: f"{kind}/{name}",
    }
    marks = {f"{labels.USER_PREFIX}{user}": uid for user, uid in users.items()}
    managed = {labels.MANAGED_BY: labels.MANAGED_BY_VALUE, labels.COMPONENT: "secret"}
    return {
        "metadata": {
            "name": f"mpx-{name}",
            "namespace": "ml",
            "labels": managed,
            "annotations": {
                **annotations,
                **marks,
                labels.SOURCE_VERSION: version,
                **notes,
            },
        }
    }


@dataclass
class Place:
    """One cluster with two replicas and a cache, the store, and the notified owners."""

    store: SecretDirectory
    copies: CopyIndex = field(default_factory=CopyIndex)
    owners: list[ObjectOwner] = field(
        default_factory=lambda: [
            ObjectOwner("InferenceCluster", "", "eu", "u0"),
            ONE,
            TWO,
            CACHE,
        ]
    )
    told: Counter[str] = field(default_factory=Counter)
    down: set[str] = field(default_factory=set)
    notifier: RotationNotifier = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Run on a worker that has just started."""
        self.notifier = RotationNotifier(
            SourceVersions(self.store),
            cast(Client, self),
            self.copies,
            lambda: self.owners,
        )

    def get_workflow_handle(self, workflow_id: str) -> Any:
        async def signal(name: str, payload: Any) -> None:
            if workflow_id in self.down:
                raise RPCError("down", RPCStatusCode.UNAVAILABLE, b"")
            uid = {
                ONE.workflow_id: "u1",
                TWO.workflow_id: "u2",
                CACHE.workflow_id: "u3",
            }[workflow_id]
            assert (name, payload["uid"]) == ("secrets_changed", uid)
            self.told[uid] += 1

        return SimpleNamespace(signal=signal)

    async def put(
        self, value: bytes, kind: SecretKind = "Secret", name: str = "hub"
    ) -> str:
        await self.store.put(StoredSecret("ml", name, {"token": value}, kind=kind))
        info = await self.store.describe("ml", name)
        assert info
        return info.version

    def stands(
        self, version: str, users: Mapping[str, str] | None = None, **fields: str
    ) -> None:
        """Put a copy of this version on the cluster."""
        self.copies.put(
            SECRET,
            NamespacedName("ml", f"mpx-{fields.get('name', 'hub')}"),
            read_copy(a_copy(version, users or {"w1": "u1"}, **fields)),
        )

    async def look(self, times: int = 1) -> Counter[str]:
        for _ in range(times):
            await self.notifier.notify()
        told, self.told = self.told, Counter()
        return told


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(rotated_secrets, "LOOK_SECONDS", 0.0)
    return Place(SecretDirectory(tmp_path))


async def test_only_replicas_with_a_copy_are_notified_once_of_a_new_version(
    place: Place,
) -> None:
    place.stands(await place.put(b"first"))
    assert await place.look(3) == Counter()
    await place.put(b"second")
    assert await place.look(3) == Counter(u1=1)
    place.stands(await place.put(b"second"), {"w1": "u1", "w2": "u2"})
    assert await place.look(3) == Counter()
    await place.put(b"third")
    assert await place.look(3) == Counter(u1=1, u2=1)


async def test_a_config_map_is_followed_and_differs_from_a_secret_of_its_name(
    place: Place,
) -> None:
    place.stands(
        await place.put(b"first", "ConfigMap", "tuning"),
        kind="ConfigMap",
        name="tuning",
    )
    await place.put(b"second", "ConfigMap", "tuning")
    assert await place.look() == Counter(u1=1)
    place.start()
    place.stands("version", kind="Secret", name="tuning")
    assert await place.look() == Counter()


def a_copy_of_a_cache(version: str, source: str) -> Json:
    owned = {
        labels.OWNER_KIND: "ModelCache",
        labels.OWNER_NAME: "qwen",
        labels.OWNER_UID: "u3",
        labels.SOURCE: source,
    }
    return a_copy(version, {}, **owned)


async def test_a_cache_is_notified_of_changed_secrets_and_config_maps_of_its_jobs(
    place: Place,
) -> None:
    for kind, name in (("Secret", "hub"), ("ConfigMap", "bundle")):
        version = await place.put(b"first", cast(SecretKind, kind), name)
        place.copies.put(
            SECRET,
            NamespacedName("ml", f"claim-{name}"),
            read_copy(a_copy_of_a_cache(version, f"{kind}/{name}")),
        )
        assert await place.look(2) == Counter()
        await place.put(b"second", cast(SecretKind, kind), name)
        assert await place.look(2) == Counter(u3=1)
        place.start()
        place.copies.put(SECRET, NamespacedName("ml", f"claim-{name}"), None)
        assert await place.look() == Counter()


async def test_a_cache_is_notified_of_a_changed_platform_pull_secret_of_its_jobs(
    place: Place,
) -> None:
    place.stands(await place.put(b"first"), {"claim-1": "u3"})
    await place.put(b"second")
    assert await place.look(2) == Counter(u3=1)


@pytest.mark.parametrize("source", ["", "Secret", "Secret/"])
def test_a_copy_of_a_cache_without_its_source_is_not_compared(
    source: str,
) -> None:
    assert read_copy(a_copy_of_a_cache("v", source)) is None


async def test_a_change_while_no_worker_ran_is_found_by_the_next(
    place: Place,
) -> None:
    place.stands(await place.put(b"first"))
    await place.put(b"second")
    place.start()
    assert await place.look() == Counter(u1=1)


async def test_a_deleted_source_is_not_a_new_version(place: Place) -> None:
    place.stands(await place.put(b"first"))
    await place.store.delete("Secret", "ml", "hub")
    assert await place.look() == Counter()


async def test_a_copy_of_an_earlier_release_has_no_version_and_is_left_to_the_resync(
    place: Place,
) -> None:
    assert read_copy(a_copy("", {"w1": "u1"})) is None
    del place


async def test_a_deleted_copy_is_not_compared(place: Place) -> None:
    place.stands(await place.put(b"first"))
    await place.put(b"second")
    place.copies.put(SECRET, NamespacedName("ml", "mpx-hub"), None)
    assert await place.look() == Counter()


def test_a_replica_that_does_not_follow_is_notified_at_growing_intervals(
    place: Place,
) -> None:
    async def told() -> list[int]:
        place.stands(await place.put(b"first"))
        await place.put(b"second")
        counts = []
        for _ in range(8):
            counts.append((await place.look(2))["u1"])
            await asyncio.sleep(shortest)
        return counts

    # In virtual time, in which a check takes seconds.
    shortest = rotated_secrets.REPEAT_SECONDS[0]
    assert run(told, generator()) == [1, 1, 0, 1, 0, 0, 0, 1]


async def test_a_lost_message_is_sent_again_and_delays_no_other_replica(
    place: Place,
) -> None:
    place.stands(await place.put(b"first"), {"w1": "u1", "w2": "u2"})
    await place.put(b"second")
    place.down.add(ONE.workflow_id)
    assert await place.look(2) == Counter(u2=1)
    place.down.clear()
    assert await place.look(2) == Counter(u1=1)


async def test_a_replica_that_appears_after_its_copy_is_notified_then(
    place: Place,
) -> None:
    place.stands(await place.put(b"first"), {"w2": "u2"})
    await place.put(b"second")
    place.owners.remove(TWO)
    assert await place.look() == Counter()
    place.owners.append(TWO)
    assert await place.look() == Counter(u2=1)


@dataclass
class Counted:
    """A store that counts its reads."""

    asked: Counter[str] = field(default_factory=Counter)
    denied: frozenset[str] = frozenset()

    async def describe(self, namespace: str, name: str) -> SecretInfo:
        self.asked[f"{namespace}/{name}"] += 1
        if namespace in self.denied:
            raise PermissionDenied("no")
        return SecretInfo(namespace, name, "Secret", "Opaque", {}, (), "v")


async def test_one_read_of_a_source_serves_all_clusters_of_a_worker() -> None:
    store = Counted()
    versions = SourceVersions(cast(Any, store))
    sources = [SourceKey("Secret", "ml", name) for name in ("a", "b")]
    for _ in range(3):
        assert await versions.of(sources) == dict.fromkeys(sources, "v")
    assert store.asked == Counter({"ml/a": 1, "ml/b": 1})


async def test_an_unreadable_or_impossible_source_delays_no_other(
    tmp_path: Path,
) -> None:
    versions = SourceVersions(cast(Any, Counted(denied=frozenset({"secret-team"}))))
    denied, other = (
        SourceKey("Secret", "secret-team", "a"),
        SourceKey("Secret", "ml", "b"),
    )
    assert await versions.of([denied, other]) == {denied: "", other: "v"}
    outside = SourceKey("Secret", "..", "../../etc")
    assert await SourceVersions(SecretDirectory(tmp_path)).of([outside]) == {
        outside: ""
    }


@pytest.mark.parametrize(
    ("sources", "seconds"), [(0, 10.0), (50, 10.0), (300, 30.0), (100_000, 60.0)]
)
def test_a_change_is_detected_within_a_minute_with_any_number_of_sources(
    sources: int, seconds: float
) -> None:
    assert rotated_secrets.pause_seconds(sources) == seconds
