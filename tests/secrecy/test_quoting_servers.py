"""Servers quote requests in their answers, and no credential reaches an error or a log."""

import base64
import functools
import ipaddress
import json
import ssl
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from activities.clients.hubs.huggingface import HuggingFaceHub
from activities.clients.hubs.oci import OciRegistry
from activities.clients.kubernetes.client import KubernetesCluster
from activities.clients.kubernetes.kubeconfig import ApiServerAccess
from activities.clients.kubernetes.session import Session
from activities.clients.outward.redaction import REDACTED, without_credential
from activities.cluster_objects.cluster_api import (
    GroupVersionKind,
    Json,
    ObjectId,
    Selection,
)
from activities.render.cache.artifact import read_artifact
from activities.render.inputs.facts import CacheInput
from api_types.errors import ModelplaneError
from tests.environment.api_server import api_server
from tests.secrecy.environment.canaries import Canaries
from tests.secrecy.environment.echo import echoing_host, echoing_proxy
from tests.secrecy.environment.plane import a_value

STATUSES = (302, 307, 400, 401, 403, 404, 409, 422, 429, 500, 503)
WORDS = "refused because of something that is no secret at all"


async def shown(call: Callable[[], Awaitable[object]]) -> str:
    """Return everything that a failed call shows: the error, its causes, and the log."""
    with capture_logs() as logged, pytest.raises(ModelplaneError) as failure:
        await call()
    error: BaseException | None = failure.value
    texts = [json.dumps(logged, default=str)]
    while error:
        texts += [
            str(error),
            repr(error),
            *(str(each) for each in getattr(error, "details", ())),
        ]
        error = error.__cause__ or (
            None if error.__suppress_context__ else error.__context__
        )
    return "\n".join(texts)


@pytest.mark.parametrize(
    "status", [status for status in STATUSES if status not in (302, 307, 404)]
)
async def test_an_api_server_that_quotes_a_request(status: int) -> None:
    canaries = Canaries({"token": a_value("token")})
    async with echoing_proxy(
        "http://127.0.0.1:1", ssl.create_default_context()
    ) as server:
        server.faults = {"* /": status}
        access = ApiServerAccess(
            server=server.address, token=canaries.values["token"], allow_loopback=True
        )
        cluster = KubernetesCluster(Session("quoting", access))
        calls: list[Callable[[], Awaitable[object]]] = [
            cluster.version,
            lambda: cluster.get(ObjectId(GroupVersionKind("v1", "Secret"), "n", "s")),
            lambda: cluster.list(
                Selection(GroupVersionKind("apps/v1", "Deployment"), "n")
            ),
        ]
        texts = [await shown(call) for call in calls]
        await cluster.close()
    assert server.tokens == {f"Bearer {canaries.values['token']}"}
    assert canaries.seen_in("\n".join(texts)) == []


@pytest.mark.slow
@pytest.mark.parametrize("status", [400, 403, 422, 429, 500])
@pytest.mark.parametrize(
    ("kind", "field"), [("Secret", "data"), ("ConfigMap", "binaryData")]
)
async def test_an_api_server_that_quotes_what_it_is_given(
    kind: str, field: str, status: int
) -> None:
    canaries = Canaries({"value": a_value("value")})
    encoded = base64.b64encode(canaries.values["value"].encode()).decode()
    manifest: Json = {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": "s", "namespace": "n"},
        field: {"key": encoded},
    }
    async with (
        api_server() as behind,
        echoing_proxy(behind.address, ssl.create_default_context()) as server,
    ):
        server.faults = dict.fromkeys(("PATCH /", "POST /", "PUT /"), status)
        cluster = KubernetesCluster(
            Session(
                "quoting",
                ApiServerAccess(
                    server=server.address, token="t" * 20, allow_loopback=True
                ),
            )
        )
        calls = (cluster.apply, cluster.create, cluster.replace)
        texts = [await shown(functools.partial(call, manifest)) for call in calls]
        await cluster.close()
    assert len(server.refused) >= len(calls)
    assert canaries.seen_in("\n".join(texts)) == []


def a_source(spec: Json) -> CacheInput:
    return CacheInput(
        namespace="n", name="c", uid="u", generation=1, cluster="", spec=spec
    )


@pytest.mark.parametrize("status", [200, *STATUSES])
async def test_a_hub_that_quotes_a_request(status: int) -> None:
    canaries = Canaries({"token": a_value("token")})
    with echoing_host() as host:
        hub = HuggingFaceHub(f"http://{host.address}")
        spec = {
            "source": "HuggingFace",
            "huggingFace": {"repo": f"acme/s-{status}", "sizeGiB": 1},
        }
        text = await shown(
            lambda: hub.resolve(read_artifact(a_source(spec)), canaries.values["token"])
        )
    assert f"Bearer {canaries.values['token']}" in host.sent
    assert canaries.seen_in(text) == []


@pytest.mark.parametrize("status", ["200", *map(str, STATUSES), "realm"])
async def test_a_registry_and_its_token_server_that_quote_a_request(
    status: str,
) -> None:
    password = a_value("login")
    login = base64.b64encode(f"robot:{password}".encode()).decode()
    canaries = Canaries({"password": password, "login": login})
    with echoing_host() as host:
        registry = OciRegistry(
            [ipaddress.ip_network("127.0.0.0/8")], allow_plain_http=True
        )
        spec = {
            "source": "OCI",
            "oci": {
                "image": f"{host.address}/models/s-{status}:1",
                "sizeGiB": 1,
                "plainHTTP": True,
            },
        }
        config = json.dumps({"auths": {host.address: {"auth": login}}})
        text = await shown(
            lambda: registry.resolve(read_artifact(a_source(spec)), config)
        )
    assert f"Basic {login}" in host.sent
    assert canaries.seen_in(text) == []


@pytest.mark.parametrize(
    "quoted", ["{}", "Bearer {}", "a token of {} and {}", "b3BhcXVlLXRva2VuLTE="]
)
def test_a_credential_is_removed_in_each_of_its_forms(quoted: str) -> None:
    text = without_credential(
        f"{WORDS}: {quoted.format('opaque-token-1', 'opaque-token-1')}",
        "Bearer opaque-token-1",
    )
    assert "opaque" not in text
    assert "b3Bhc" not in text
    assert WORDS in text
    assert REDACTED in text


def test_a_text_without_the_credential_is_left_as_it_is() -> None:
    assert without_credential(WORDS, "Bearer opaque-token-1") == WORDS
    assert without_credential(WORDS, "") == WORDS
    assert without_credential(WORDS, "Bearer no") == WORDS
