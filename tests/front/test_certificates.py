"""Client certificates over real TLS: the common name is the user, organizations are
groups.
"""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import cast

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from api_types.clock import utc_now
from api_types.sections.front import FrontSettings
from fleet_client.errors import Refused
from fleet_client.temporal.control_plane import ControlPlane
from front.access import certificates
from front.access.access import AccessControl
from front.access.access_file import AccessRules, User
from front.access.certificates import of_connection
from front.configuration.listening import server_tls
from front.serving.app import Front
from front.serving.reads import watching
from front.store.projection import Projection
from testbed.cluster.pki import LIFETIME, Authority
from tests.front.fleet_of_tenants import ACCESS, TOKENS

PATH = "/apis/modelplane.ai/v1alpha1/namespaces/{}/modeldeployments"
# Cora is not in the access file, but has the group of a tenant.
CLIENTS = {"cora": ("cora", "team-a"), "dan": ("dan", "team-x"), "root": ("root", None)}


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[TestServer]:
    pki = Authority(folder / "pki", clients=CLIENTS)
    pki.ensure()
    access = folder / "access.yaml"
    access.write_text(ACCESS)
    pair = pki.pair("apiserver")
    settings = FrontSettings(
        access_file=access,
        tls_cert=pair.certificate,
        tls_key=pair.key,
        client_ca=pki.ca,
    )
    projection = Projection()
    projection.complete = True
    server = TestServer(
        Front(
            cast("ControlPlane", None), projection, AccessControl(AccessRules(access))
        ).app()
    )
    await server.start_server(ssl=server_tls(settings))
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def session(
    server: TestServer, folder: Path, who: str = "", token: str = ""
) -> AsyncIterator[aiohttp.ClientSession]:
    trusted = ssl.create_default_context(cafile=str(folder / "pki" / "ca.crt"))
    if who:
        pair = (
            Authority(folder / "pki").pair(who)
            if "/" not in who
            else Authority(Path(who).parent).pair(Path(who).name)
        )
        trusted.load_cert_chain(pair.certificate, pair.key)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession(
        f"https://127.0.0.1:{server.port}",
        connector=aiohttp.TCPConnector(ssl=trusted),
        headers=headers,
    ) as made:
        yield made


@pytest.mark.parametrize(
    ("who", "token", "namespace", "code"),
    [
        ("cora", "", "a", 200),
        ("cora", "", "b", 403),
        ("dan", "", "a", 403),
        ("root", "", "b", 200),
        ("", "", "a", 401),
        ("", TOKENS["ann"], "a", 200),
        # A token takes precedence.
        ("root", TOKENS["ann"], "b", 403),
        ("root", "wrong", "b", 401),
    ],
)
async def test_the_certificate_names_the_user_and_the_access_file_grants_rights(
    tmp_path: Path, who: str, token: str, namespace: str, code: int
) -> None:
    async with (
        served(tmp_path) as server,
        session(server, tmp_path, who, token) as mine,
        mine.get(PATH.format(namespace)) as answer,
    ):
        told = await answer.json()
    assert answer.status == code, told
    if code == 403 and not token:
        assert f'User "{who}" cannot list' in told["message"]


async def test_a_certificate_of_another_authority_is_rejected(tmp_path: Path) -> None:
    Authority(tmp_path / "other", clients=CLIENTS).ensure()
    async with (
        served(tmp_path) as server,
        session(server, tmp_path, str(tmp_path / "other" / "root")) as mine,
    ):
        with pytest.raises(aiohttp.ClientError):
            await mine.get(PATH.format("a"))


async def test_a_certificate_that_expires_ends_its_connection_and_its_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "CHECK_SECONDS", 0.1)
    async with served(tmp_path) as server, session(server, tmp_path, "cora") as mine:
        async with mine.get(PATH.format("a") + "?watch=true") as watch:
            assert watch.status == 200
            later = utc_now() + LIFETIME + timedelta(hours=1)
            monkeypatch.setattr(certificates, "utc_now", lambda: later)
            assert await watch.read() == b""
        async with mine.get(PATH.format("a")) as answer:
            assert answer.status == 401


def user_of(certificate: Mapping[str, object]) -> User | None:
    held = of_connection(certificate)
    assert held
    return held.user()


@pytest.mark.parametrize(
    "subject",
    [
        (),
        ((("commonName", ""),),),
        ((("commonName", "x" * 254),),),
        ((("commonName", "ann"),), (("commonName", "root"),)),
        (
            (("commonName", "ann"),),
            *((("organizationName", f"g{number}"),) for number in range(65)),
        ),
        ((("organizationName", "team-a"),),),
    ],
    ids=[
        "no subject",
        "no name",
        "a long name",
        "two names",
        "many groups",
        "a group alone",
    ],
)
def test_an_invalid_subject_has_no_user(subject: tuple[object, ...]) -> None:
    assert user_of({"subject": subject, "notAfter": "Jan  1 00:00:00 2100 GMT"}) is None
    valid = {
        "subject": ((("organizationName", "g"),), (("commonName", "eve"),)),
        "notAfter": "Jan  1 00:00:00 2100 GMT",
    }
    found = user_of(valid)
    assert found
    assert (found.name, found.groups) == ("eve", ("g", "system:authenticated"))


@pytest.mark.parametrize("missing", ["access_file", "tls_cert", "client_ca"])
def test_client_certificates_need_tls_rules_and_an_existing_file(
    tmp_path: Path, missing: str
) -> None:
    pki = Authority(tmp_path / "pki")
    pki.ensure()
    pair = pki.pair("apiserver")
    settings = FrontSettings(
        access_file=tmp_path / "access.yaml",
        tls_cert=pair.certificate,
        tls_key=pair.key,
        client_ca=pki.ca,
    )
    absent = (
        {"tls_cert": None, "tls_key": None}
        if missing == "tls_cert"
        else {missing: None}
    )
    changed = {"client_ca": tmp_path / "none"} if missing == "client_ca" else absent
    with pytest.raises(Refused, match=r"front\.clientCa"):
        server_tls(settings.model_copy(update=changed))
