"""Both forms of the secret store fulfil one contract."""

import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import get_args

import pytest
import pytest_asyncio

from activities.clients.secrets import directory
from activities.clients.secrets.cluster import SecretCluster
from activities.clients.secrets.directory import SecretDirectory
from activities.secrets.selection import secret_store
from activities.secrets.store import (
    SecretKind,
    SecretMissing,
    SecretStore,
    StoredSecret,
)
from api_types.errors import InvalidInput, NameConflict
from api_types.sections.clusters import SecretSettings
from api_types.settings import Settings
from testbed.running import Running
from tests.activities.environment.cluster_under_test import cluster_from

NAMESPACES = ("ml-team", "a", "b")
VALUE = b"hf_aVeryPrivateTokenThatNobodyMaySee"


@pytest_asyncio.fixture(
    params=[
        "directory",
        pytest.param("cluster", marks=pytest.mark.testbed("asked for")),
    ]
)
async def store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[SecretStore]:
    """Each form of the store, empty."""
    if request.param == "directory":
        yield SecretDirectory(tmp_path / "store")
        return
    running: Running = request.getfixturevalue("testbed")
    cluster = await cluster_from(
        "prod-eu", running.clusters["prod-eu"].kubeconfig.read_text(), tmp_path
    )
    made = SecretCluster(cluster.api)
    for info in [
        info for namespace in NAMESPACES for info in await made.list(namespace)
    ]:
        await made.delete(info.kind, info.namespace, info.name)
    yield made
    await cluster.pool.close()


async def test_an_entry_is_read_as_it_was_put(store: SecretStore) -> None:
    secret = StoredSecret(
        "ml-team",
        "hub",
        {"token": VALUE, ".dockerconfigjson": b"{}", "raw": bytes(range(256))},
        labels={"a": "b"},
    )
    await store.put(secret)
    assert await store.get("ml-team", "hub", "raw") == bytes(range(256))
    found = await store.read("ml-team", "hub")
    assert (found.data, found.type, found.kind, found.labels["a"]) == (
        secret.data,
        "Opaque",
        "Secret",
        "b",
    )


async def test_a_second_put_replaces_the_whole_entry(store: SecretStore) -> None:
    await store.put(StoredSecret("ml-team", "hub", {"old": VALUE, "token": b"1"}))
    await store.put(StoredSecret("ml-team", "hub", {"token": b"2"}))
    assert (await store.read("ml-team", "hub")).data == {"token": b"2"}


async def test_a_config_map_is_kept_as_one_and_shares_its_name_with_no_secret(
    store: SecretStore,
) -> None:
    await store.put(StoredSecret("ml-team", "flags", {"a": b"1"}, kind="ConfigMap"))
    assert (await store.read("ml-team", "flags")).kind == "ConfigMap"
    with pytest.raises(NameConflict, match="taken by a ConfigMap"):
        await store.put(StoredSecret("ml-team", "flags", {"a": b"1"}))


async def test_a_missing_entry_is_named_without_any_value(store: SecretStore) -> None:
    with pytest.raises(SecretMissing, match="Secret ml-team/hub does not exist"):
        await store.get("ml-team", "hub", "token")
    await store.put(StoredSecret("ml-team", "hub", {"token": VALUE}))
    with pytest.raises(SecretMissing, match="has no key 'tokens': its keys are token"):
        await store.get("ml-team", "hub", "tokens")
    assert await store.describe("ml-team", "nothing") is None


async def test_a_description_holds_no_value_and_a_version_that_follows_the_content(
    store: SecretStore,
) -> None:
    await store.put(StoredSecret("ml-team", "hub", {"token": VALUE}))
    first = await store.describe("ml-team", "hub")
    await store.put(StoredSecret("ml-team", "hub", {"token": VALUE}))
    same = await store.describe("ml-team", "hub")
    await store.put(StoredSecret("ml-team", "hub", {"token": VALUE + b"2"}))
    changed = await store.describe("ml-team", "hub")
    assert first is not None
    assert first == same
    assert changed is not None
    assert changed.version != first.version
    assert first.keys == ("token",)
    assert VALUE.decode() not in repr(first)
    assert VALUE.decode() not in repr(await store.read("ml-team", "hub"))


async def test_listing_is_by_namespace_and_name(store: SecretStore) -> None:
    for namespace, name in (("b", "x"), ("a", "z"), ("a", "y")):
        await store.put(StoredSecret(namespace, name, {"k": b"v"}))
    assert [
        (info.namespace, info.name)
        for info in await store.list()
        if info.namespace in NAMESPACES
    ] == [
        ("a", "y"),
        ("a", "z"),
        ("b", "x"),
    ]
    assert [info.name for info in await store.list("a")] == ["y", "z"]


async def test_deleting_twice_is_fine(store: SecretStore) -> None:
    await store.put(StoredSecret("ml-team", "hub", {"token": VALUE}))
    assert [
        await store.delete("Secret", "ml-team", "hub"),
        await store.delete("Secret", "ml-team", "hub"),
    ] == [True, False]
    assert await store.list("ml-team") == []


@pytest.mark.parametrize("kind", get_args(SecretKind))
async def test_an_entry_of_the_other_kind_is_not_deleted(
    kind: SecretKind, store: SecretStore
) -> None:
    other: SecretKind = "ConfigMap" if kind == "Secret" else "Secret"
    await store.put(StoredSecret("ml-team", "hub", {"token": VALUE}, kind=kind))
    assert await store.delete(other, "ml-team", "hub") is False
    assert (await store.read("ml-team", "hub")).data == {"token": VALUE}
    assert await store.delete(kind, "ml-team", "hub") is True


BAD_NAMES = [
    ("..", "hub", "token"),
    ("ml-team", "../../etc", "passwd"),
    ("ml-team", "hub", "../token"),
    ("ml-team", "hub", ".meta.json"),
    ("A", "b", "c"),
]


@pytest.mark.parametrize(
    ("namespace", "name", "key"), BAD_NAMES, ids=["/".join(case) for case in BAD_NAMES]
)
async def test_names_that_point_outside_the_store_are_refused(
    namespace: str, name: str, key: str, store: SecretStore
) -> None:
    with pytest.raises(InvalidInput, match="must"):
        await store.put(StoredSecret(namespace, name, {key: VALUE}))
    with pytest.raises(InvalidInput, match="must"):
        await store.get(namespace, name, key)


@pytest.mark.parametrize("name", ["../../etc", "A", "b\x00"])
async def test_names_that_point_outside_the_store_are_not_deleted(
    name: str, store: SecretStore
) -> None:
    with pytest.raises(InvalidInput, match="must"):
        await store.delete("Secret", "ml-team", name)


async def test_all_problems_of_a_name_are_reported_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        await SecretDirectory(Path("/nowhere")).put(
            StoredSecret("A", "B", {"..c": VALUE})
        )
    assert [
        part in str(caught.value) for part in ("namespace 'A'", "name 'B'", "key '..c'")
    ] == [True, True, True]


async def test_folders_are_for_the_owner_alone_and_files_too(tmp_path: Path) -> None:
    os.umask(0)
    try:
        await SecretDirectory(tmp_path / "store").put(
            StoredSecret("ml-team", "hub", {"token": VALUE})
        )
    finally:
        os.umask(0o022)
    modes = {
        stat.S_IMODE(place.stat().st_mode)
        for place in [tmp_path / "store", *(tmp_path / "store").rglob("*")]
        if place.is_dir()
    }
    assert modes == {0o700}
    assert {
        stat.S_IMODE(place.stat().st_mode)
        for place in (tmp_path / "store").rglob("*")
        if place.is_file()
    } == {0o600}


async def test_a_directory_that_kubernetes_mounted_is_read_as_it_is(
    tmp_path: Path,
) -> None:
    mount = tmp_path / "ml-team" / "hub"
    (mount / "..2026_11_21").mkdir(parents=True)
    (mount / "..2026_11_21" / "token").write_bytes(VALUE)
    (mount / "..data").symlink_to("..2026_11_21")
    (mount / "token").symlink_to("..data/token")
    store = SecretDirectory(tmp_path)
    assert await store.get("ml-team", "hub", "token") == VALUE
    assert (await store.read("ml-team", "hub")).data == {"token": VALUE}


async def test_an_interrupted_write_keeps_the_old_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SecretDirectory(tmp_path)
    await store.put(StoredSecret("ml-team", "hub", {"token": b"old"}))

    def die(*_: object) -> None:
        raise OSError("killed")

    monkeypatch.setattr(Path, "replace", die)
    with pytest.raises(OSError, match="killed"):
        await store.put(StoredSecret("ml-team", "hub", {"token": b"new"}))
    assert (await store.read("ml-team", "hub")).data == {"token": b"old"}


async def test_a_new_entry_is_seen_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SecretDirectory(tmp_path)
    seen: set[tuple[str, ...]] = set()
    wanted = StoredSecret(
        "ml-team",
        "hub",
        {"token": VALUE, "user": b"anna"},
        type="kubernetes.io/basic-auth",
    )

    def noted(place: Path, content: bytes, *, replace: bool = True) -> None:
        write(place, content, replace=replace)
        if (tmp_path / "ml-team" / "hub").is_dir():
            found = store._read("ml-team", "hub")
            seen.add((found.type, *sorted(found.data)))

    write = directory._write
    monkeypatch.setattr(directory, "_write", noted)
    await store.put(wanted)
    assert await store.read("ml-team", "hub") == wanted
    assert seen == set()


@pytest.mark.slow
def test_the_directory_form_needs_no_kubernetes_sdk(tmp_path: Path) -> None:
    code = (
        "import sys; from activities.secrets.selection import secret_store; "
        "from api_types.sections.clusters import SecretSettings; "
        "from api_types.settings import Settings; from pathlib import Path;"
        f"secret_store(Settings(secrets=SecretSettings(directory=Path({str(tmp_path)!r}))));"
        "sys.exit(any(name.split('.')[0] in {'kubernetes', 'aiohttp'} for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_settings_choose_the_form(tmp_path: Path) -> None:
    assert isinstance(
        secret_store(Settings(secrets=SecretSettings(directory=tmp_path))),
        SecretDirectory,
    )
    assert isinstance(
        secret_store(Settings(secrets=SecretSettings(store="controlCluster"))),
        SecretCluster,
    )
