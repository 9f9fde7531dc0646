"""Requests that an API server forwards over real TLS: long names, many groups, bad
headers.
"""

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from multidict import CIMultiDict

from api_types.sections.front import FrontSettings
from front.access.recorded import NAME_MAX, recorded
from front.access.request_header import Proxies
from front.configuration.listening import server_tls
from testbed.cluster.pki import Authority
from tests.front.fleet_of_tenants import TOKENS, Fleet, a_fleet

PATH = "/apis/modelplane.ai/v1alpha1/namespaces/a/modeldeployments"
ACCOUNT = f"system:serviceaccount:{'n' * 63}:{'a' * 253}"


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    pki = Authority(tmp_path / "pki", clients={"proxy": ("front-proxy-client", None)})
    pki.ensure()
    pair = pki.pair("apiserver")
    settings = FrontSettings(
        access_file=tmp_path / "access.yaml",
        tls_cert=pair.certificate,
        tls_key=pair.key,
        request_header_ca=pki.ca,
    )
    proxies = Proxies(
        x509.load_pem_x509_certificates(pki.ca.read_bytes()),
        frozenset({"front-proxy-client"}),
    )
    async with a_fleet(tmp_path, proxies=proxies, tls=server_tls(settings)) as fleet:
        yield fleet


async def ask(
    fleet: Fleet,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes | None = None,
) -> tuple[int, str]:
    """Send a request as an API server; return the status and the body."""
    pki = Authority(fleet.folder / "pki")
    pair = pki.pair("proxy")
    trusted = ssl.create_default_context(cafile=str(pki.ca))
    trusted.load_cert_chain(pair.certificate, pair.key)
    connector = aiohttp.TCPConnector(ssl=trusted)
    async with (
        aiohttp.ClientSession(
            f"https://127.0.0.1:{fleet.client.port}", connector=connector
        ) as session,
        session.request(method, path, data=body, headers=headers) as answer,
    ):
        return answer.status, await answer.text()


@pytest.mark.parametrize(
    "name",
    ["ann", ACCOUNT, "x" * 1024],
    ids=["short", "service account", "the longest"],
)
async def test_users_with_long_names_can_write(fleet: Fleet, name: str) -> None:
    scale, event = (
        b'{"metadata":{},"spec":{"replicas":5}}',
        json.dumps({"reason": "why", "message": "so"}).encode(),
    )
    who = {
        "X-Remote-User": name,
        "X-Remote-Group": "team-a",
        "Content-Type": "application/json",
    }
    assert (await ask(fleet, "PUT", f"{PATH}/mine/scale", who, scale))[0] == 200
    of_event = {
        "ce-specversion": "1.0",
        "ce-id": "1",
        "ce-source": "keda",
        "ce-type": "keda.scaledobject.ready.v1",
    }
    of_event["ce-subject"] = "/eu/a/scaledobject/mine"
    status, told = await ask(fleet, "POST", "/v1/events", {**who, **of_event}, event)
    assert status == 202, told
    _, shown = await ask(fleet, "GET", f"{PATH}/mine", who)
    document = json.loads(shown)
    document["metadata"]["labels"] = {"tier": "silver"}
    for method, path in (("PUT", f"{PATH}/mine"), ("DELETE", f"{PATH}/mine")):
        status, told = await ask(
            fleet,
            method,
            path,
            who,
            json.dumps(document if method == "PUT" else {}).encode(),
        )
        assert status == 200, told
    assert fleet.plane.by == [recorded(name)] * 4


def test_long_names_are_shortened_to_distinct_names() -> None:
    assert recorded("x" * NAME_MAX) == "x" * NAME_MAX
    names = [ACCOUNT, ACCOUNT[:-1] + "b", "x" * 1024]
    assert len({recorded(name) for name in names}) == 3
    assert {len(recorded(name)) for name in names} == {NAME_MAX}
    assert recorded(ACCOUNT).startswith(f"system:serviceaccount:{'n' * 63}:aaa")


async def test_a_user_may_have_hundreds_of_groups(fleet: Fleet) -> None:
    headers = CIMultiDict({"X-Remote-User": "zoe"})
    for number in range(500):
        headers.add("X-Remote-Group", f"group-{number}")
    assert (await ask(fleet, "GET", PATH, headers))[0] == 403
    headers.add("X-Remote-Group", "team-a")
    assert (await ask(fleet, "GET", PATH, headers))[0] == 200
    for number in range(20):
        headers.add("X-Remote-Group", f"more-{number}")
    status, told = await ask(fleet, "GET", PATH, headers)
    assert (status, json.loads(told)["message"]) == (
        401,
        (
            "Unauthorized: the headers about the user have more than 512 values, or a "
            "value of more than 1024 characters"
        ),
    )


async def test_invalid_user_headers_are_an_error_even_with_a_token(
    fleet: Fleet,
) -> None:
    mine = {"Authorization": f"Bearer {TOKENS['ann']}"}
    assert (await ask(fleet, "GET", PATH, mine))[0] == 200
    for name in ("", " ", "a\u200bb"):
        status, told = await ask(fleet, "GET", PATH, {**mine, "X-Remote-User": name})
        assert status == 401
        assert "X-Remote-User is empty or not printable" in json.loads(told)["message"]
