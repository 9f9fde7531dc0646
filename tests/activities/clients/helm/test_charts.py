"""Real helm fetches charts from HTTP and OCI repositories on loopback."""

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from activities.clients.helm.charts import ChartStore, source
from activities.clients.helm.folders import WorkerFolder
from activities.clients.helm.limits import HelmLimits
from activities.clients.helm.port import Chart
from api_types.errors import ChartUnavailable, InvalidInput
from api_types.sections.stacks import StackSettings
from testbed.cluster.pki import Authority
from tests.activities.clients.helm.conftest import Script, numbers_in
from tests.environment.charts import ChartRepository, PackedChart, chart

LWS = chart(
    "lws",
    "v0.8.0",
    crds={"lws.yaml": "kind: CustomResourceDefinition\nmetadata: {name: lws}\n"},
)
NFD = chart("nfd", "0.18.3")
# Nothing listens there.
NOWHERE = "http://127.0.0.1:9"


# References

JETSTACK, ENVOY = "https://charts.jetstack.io", "oci://docker.io/envoyproxy"


@pytest.mark.parametrize(
    ("repository", "mirror", "expected"),
    [
        (JETSTACK, "", ("lws", JETSTACK)),
        (f"{JETSTACK}/", "", ("lws", JETSTACK)),
        ("http://10.0.0.1", "", ("lws", "http://10.0.0.1")),
        (ENVOY, "", (f"{ENVOY}/lws", "")),
        (f"{ENVOY}/", "", (f"{ENVOY}/lws", "")),
        (
            ENVOY,
            "https://mirror.example.com/charts",
            ("lws", "https://mirror.example.com/charts"),
        ),
        (
            JETSTACK,
            "oci://mirror.example.com/charts/",
            ("oci://mirror.example.com/charts/lws", ""),
        ),
        ("ftp://unused", ENVOY, (f"{ENVOY}/lws", "")),
    ],
)
def test_an_oci_chart_is_one_reference_and_other_charts_are_a_name_and_a_repository(
    repository: str, mirror: str, expected: tuple[str, str]
) -> None:
    assert source(Chart("lws", repository, "v0.8.0"), mirror) == expected


@pytest.mark.parametrize(
    "version", ["v1.17.1", "0.18.3", "72.6.2", "1.0.0-rc.1", "v1.0.0+build.5"]
)
def test_versions_are_taken_in_full(version: str) -> None:
    assert source(Chart("lws", JETSTACK, version)) == ("lws", JETSTACK)


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            Chart(name, JETSTACK, "1.0.0")
            for name in (
                "",
                "-o",
                "--post-renderer=x",
                "a/b",
                "../a",
                "A",
                "a b",
                "a\n",
                "x" * 64,
            )
        ),
        *(
            Chart("lws", JETSTACK, version)
            for version in (
                "",
                "-1.0.0",
                "latest",
                ">0.0.0",
                "1.0.0 || 2",
                "1.0.0\n",
                "1." * 200,
            )
        ),
        # Helm interprets these as ranges.
        *(
            Chart("lws", JETSTACK, version)
            for version in ("1", "v1.7", "1.x", "1.2.x", "1.0.x-0", "0")
        ),
        *(
            Chart("lws", repository, "1.0.0")
            for repository in (
                "",
                "ftp://x",
                "/etc",
                "file:///etc",
                "--repo",
                "charts.jetstack.io",
            )
        ),
    ],
    ids=repr,
)
def test_an_ambiguous_reference_is_refused(wrong: Chart) -> None:
    with pytest.raises(InvalidInput):
        source(wrong)


# Fetching


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    """Return the certificate of an authority, and a server with a certificate of it."""
    authority = Authority(tmp_path_factory.mktemp("pki"))
    authority.ensure()
    pair, context = authority.pair("apiserver"), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    return authority.ca, context


@pytest.fixture
def repository() -> Iterator[ChartRepository]:
    with ChartRepository(LWS, NFD) as serving:
        yield serving


@pytest.fixture
def registry(
    tls: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> Iterator[ChartRepository]:
    monkeypatch.setenv("SSL_CERT_FILE", str(tls[0]))
    with ChartRepository(LWS, NFD, tls=tls[1]) as serving:
        yield serving


@pytest.fixture
def store(worker_folder: WorkerFolder) -> ChartStore:
    return ChartStore(worker_folder, HelmLimits(4), StackSettings())


def of(packed: PackedChart, repository: str) -> Chart:
    return Chart(packed.name, repository, packed.version)


async def unavailable(store: ChartStore, helm_path: str, wanted: Chart) -> str:
    with pytest.raises(ChartUnavailable) as raised:
        await store.archive(helm_path, wanted)
    assert f"chart {wanted.name} {wanted.version} of " in raised.value.message
    assert raised.value.message.endswith("check the repository and the version")
    return raised.value.message


@pytest.mark.testbed("shared")
async def test_a_worker_fetches_a_version_once_for_all_clusters(
    store: ChartStore,
    helm_path: str,
    repository: ChartRepository,
    worker_folder: WorkerFolder,
) -> None:
    places = await asyncio.gather(
        *(store.archive(helm_path, of(LWS, repository.url)) for _ in range(5))
    )
    assert {place.read_bytes() for place in places} == {LWS.archive}
    assert await store.archive(helm_path, of(LWS, f"{repository.url}/")) == places[0]
    assert repository.requests.count("/lws-v0.8.0.tgz") == 1
    assert repository.requests.count("/index.yaml") == 1
    # None of helm's own caches is left.
    assert sorted(each.name for each in worker_folder.path.iterdir()) == sorted(
        ["lock", places[0].name]
    )


@pytest.mark.testbed("shared")
async def test_versions_and_charts_and_repositories_are_kept_apart(
    store: ChartStore, helm_path: str, repository: ChartRepository
) -> None:
    newer = chart("lws", "v0.9.0")
    repository.add(newer)
    with ChartRepository(
        changed := chart("lws", "v0.8.0", values={"of": "another"})
    ) as other:
        for packed, url in (
            (LWS, repository.url),
            (newer, repository.url),
            (NFD, repository.url),
            (changed, other.url),
        ):
            assert (
                await store.archive(helm_path, of(packed, url))
            ).read_bytes() == packed.archive


@pytest.mark.testbed("shared")
async def test_a_chart_is_fetched_from_an_oci_registry(
    store: ChartStore, helm_path: str, registry: ChartRepository
) -> None:
    assert (
        await store.archive(helm_path, of(LWS, registry.oci))
    ).read_bytes() == LWS.archive
    assert "/v2/charts/lws/manifests/v0.8.0" in registry.requests
    message = await unavailable(store, helm_path, Chart("lws", registry.oci, "9.9.9"))
    assert f"of {registry.oci}: " in message


@pytest.mark.testbed("shared")
async def test_a_mirror_takes_the_place_of_every_repository(
    helm_path: str,
    repository: ChartRepository,
    registry: ChartRepository,
    worker_folder: WorkerFolder,
) -> None:
    for mirror in (repository.url, registry.oci):
        store = ChartStore(
            worker_folder, HelmLimits(4), StackSettings(chart_mirror=mirror)
        )
        for original in (NOWHERE, "oci://127.0.0.1:9/charts"):
            assert (
                await store.archive(helm_path, of(NFD, original))
            ).read_bytes() == NFD.archive


@pytest.mark.testbed("shared")
async def test_a_missing_chart_is_unavailable_until_it_is_served(
    store: ChartStore, helm_path: str, repository: ChartRepository
) -> None:
    assert "9.9.9" in await unavailable(
        store, helm_path, Chart("lws", repository.url, "9.9.9")
    )
    late = chart("late", "1.0.0")
    assert "late" in await unavailable(store, helm_path, of(late, repository.url))
    repository.add(late)
    assert (
        await store.archive(helm_path, of(late, repository.url))
    ).read_bytes() == late.archive


@pytest.mark.testbed("shared")
@pytest.mark.parametrize("nowhere", [NOWHERE, "oci://127.0.0.1:9/charts"])
async def test_a_repository_that_does_not_answer_is_named(
    store: ChartStore, helm_path: str, nowhere: str
) -> None:
    message = await unavailable(store, helm_path, Chart("lws", nowhere, "1.0.0"))
    assert f"chart lws 1.0.0 of {nowhere}: " in message
    assert "connection refused" in message


@pytest.mark.testbed("shared")
async def test_a_registry_whose_certificate_is_not_trusted_is_unavailable(
    store: ChartStore,
    helm_path: str,
    registry: ChartRepository,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    assert "certificate" in await unavailable(store, helm_path, of(LWS, registry.oci))


@pytest.mark.testbed("shared")
async def test_the_definitions_of_a_chart_are_returned_and_another_archive_is_invalid(
    store: ChartStore, helm_path: str, repository: ChartRepository
) -> None:
    (found,) = await store.crds(helm_path, of(LWS, repository.url))
    assert found == {"kind": "CustomResourceDefinition", "metadata": {"name": "lws"}}
    broken = PackedChart("broken", "1.0.0", b"no archive")
    repository.add(broken)
    with pytest.raises(InvalidInput) as raised:
        await store.crds(helm_path, of(broken, repository.url))
    assert raised.value.message.startswith(
        "chart broken 1.0.0: its archive cannot be read: "
    )


async def test_a_cancelled_fetch_leaves_no_files_and_blocks_no_other_fetch(
    store: ChartStore, script: Script, worker_folder: WorkerFolder, tmp_path: Path
) -> None:
    hangs = script(f"echo $$ > {tmp_path}/ids; exec sleep 60", name="hangs")
    wanted = of(LWS, NOWHERE)
    fetching = asyncio.create_task(store.archive(hangs, wanted))
    await numbers_in(tmp_path / "ids")
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    assert [each.name for each in worker_folder.path.iterdir()] == ["lock"]
    gives = script(
        'for each; do case $each in --destination=*) echo x > "${each#*=}/lws.tgz";; esac; done',
        name="gives",
    )
    assert (
        await asyncio.wait_for(store.archive(gives, wanted), 60)
    ).read_text() == "x\n"


@pytest.mark.parametrize("count", [0, 2])
async def test_a_package_must_be_exactly_one_archive(
    store: ChartStore, script: Script, count: int
) -> None:
    wanted = Chart("lws", NOWHERE, "1.0.0")
    place = 'for each; do case $each in --destination=*) d="${each#*=}";; esac; done'
    gives = script(
        f'{place}; for n in {" ".join(map(str, range(count)))}; do touch "$d/$n.tgz"; done'
    )
    with pytest.raises(ChartUnavailable) as raised:
        await store.archive(gives, wanted)
    assert f"helm pulled {count} archives" in raised.value.message
