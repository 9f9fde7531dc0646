"""Connecting to a cluster, and the errors of a failure."""

import asyncio
import socket
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import Json, ObjectId
from api_types import labels
from api_types.errors import (
    ClusterUnreachable,
    CredentialsInvalid,
    ModelplaneError,
    PermissionDenied,
)
from api_types.messages.cluster_work import ClusterFacts, Connection
from tests.activities.environment import operator
from tests.activities.environment.cluster_under_test import (
    ClusterUnderTest,
    cluster_from,
    eventually,
)

pytestmark = pytest.mark.testbed


@pytest.fixture(scope="session")
def kubeconfig(testbed: Any) -> str:
    """Return the kubeconfig of `prod-eu`."""
    found: str = testbed.clusters["prod-eu"].kubeconfig.read_text()
    return found


async def test_the_facts_of_a_reachable_cluster_list_the_served_apis(
    cluster: ClusterUnderTest, testbed: Any
) -> None:
    facts = await cluster.connect()
    assert facts.kubernetes_version.startswith("1.35.")
    assert facts.dra_version == "v1"
    assert facts.gateway_address == testbed.clusters["prod-eu"].gateway_address
    assert facts.gateway_message == ""
    assert {
        "leaderworkerset.x-k8s.io/v1",
        "gateway.networking.k8s.io/v1",
        "inference.networking.k8s.io/v1",
    } <= set(facts.apis)
    # Other APIs would only cause needless renderings.
    assert "apps/v1" not in facts.apis
    assert facts.apis == sorted(set(facts.apis))


async def test_a_cluster_without_its_gateway_connects(
    cluster: ClusterUnderTest, testbed: Any
) -> None:
    gateway = ObjectId(kinds.GATEWAY, labels.SYSTEM_NAMESPACE, labels.GATEWAY_NAME)
    stored = await (await cluster.api()).get(gateway)
    assert stored
    await operator.delete(cluster, gateway)

    facts = await cluster.connect()

    await operator.make(
        cluster,
        {key: stored[key] for key in ("apiVersion", "kind", "spec")}
        | {"metadata": _name_of(stored)},
    )
    assert facts.gateway_address == ""
    assert (
        facts.gateway_message
        == "Gateway modelplane-system/inference-gateway does not exist"
    )

    async def has_its_address_again() -> bool:
        return bool(
            (await cluster.connect()).gateway_address
            == testbed.clusters["prod-eu"].gateway_address
        )

    await eventually(has_its_address_again)


class Broken(NamedTuple):
    """A broken kubeconfig, and the expected error."""

    story: str
    change: str
    error: type[ModelplaneError]
    says: tuple[str, ...]


BROKEN = [
    Broken(
        "api 17-19 a token that was never issued",
        "token",
        CredentialsInvalid,
        ("401", "put a valid kubeconfig into the secret store"),
    ),
    Broken(
        "no server",
        "port",
        ClusterUnreachable,
        ("no response from https://127.0.0.1:", "check that the API server runs"),
    ),
    Broken(
        "an authority that did not sign the server",
        "authority",
        ClusterUnreachable,
        ("certificate verify failed",),
    ),
]


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.story)
async def test_a_broken_kubeconfig_is_reported_with_cause_and_next_step(
    case: Broken, kubeconfig: str, testbed: Any, tmp_path: Path
) -> None:
    with pytest.raises(case.error) as caught:
        await _connect(
            _broken(
                case.change,
                kubeconfig,
                testbed.clusters["prod-us"].kubeconfig.read_text(),
            ),
            tmp_path,
        )
    assert all(text in caught.value.message for text in ("cluster prod-eu", *case.says))
    _assert_contains_no_secret(str(caught.value), kubeconfig)


async def test_a_server_that_accepts_connections_and_never_responds_is_unreachable_in_seconds(
    kubeconfig: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.clients.kubernetes.session.CONNECT_SECONDS", 1.0)

    closed = asyncio.Event()

    async def swallow(
        _reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await closed.wait()
        writer.close()

    async with await asyncio.start_server(swallow, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        with pytest.raises(ClusterUnreachable):
            await asyncio.wait_for(_connect(_at(kubeconfig, port), tmp_path), 4)
        closed.set()


@pytest.mark.parametrize(
    ("name", "key", "says"),
    [
        ("nothing", "kubeconfig", "Secret modelplane-system/nothing does not exist"),
        ("prod-eu-kubeconfig", "config", "its keys are kubeconfig"),
    ],
    ids=["no such Secret", "no such key"],
)
async def test_a_missing_secret_is_named_with_the_next_step(
    name: str, key: str, says: str, kubeconfig: str, tmp_path: Path
) -> None:
    cluster = await cluster_from("prod-eu", kubeconfig, tmp_path)
    cluster.connection = Connection(
        cluster="prod-eu", namespace="modelplane-system", name=name, key=key
    )
    with pytest.raises(CredentialsInvalid, match="modelplane apply -f") as caught:
        await cluster.connect()
    assert says in str(caught.value)


async def test_a_loopback_server_is_refused_unless_the_operator_allows_it(
    kubeconfig: str, tmp_path: Path
) -> None:
    with pytest.raises(CredentialsInvalid, match="loopback"):
        await _connect(kubeconfig, tmp_path, allow_loopback=False)


async def test_missing_permissions_are_listed(
    cluster: ClusterUnderTest, kubeconfig: str, tmp_path: Path
) -> None:
    token = await operator.token_of(cluster, "default", "no-permissions")
    with pytest.raises(PermissionDenied) as caught:
        await _connect(operator.with_token(kubeconfig, token), tmp_path)
    assert (
        "get,list,watch,create,patch,delete httproutes.gateway.networking.k8s.io"
        in caught.value.message
    )
    assert (
        "bind the user to the ClusterRole of deploy/inference-cluster/rbac.yaml"
        in caught.value.message
    )
    assert token not in str(caught.value)


async def test_a_token_works_as_well_as_a_certificate(
    cluster: ClusterUnderTest, kubeconfig: str, tmp_path: Path
) -> None:
    token = await operator.token_of(cluster, "kube-system", "platform")
    await operator.make_admin(cluster, "kube-system", "platform")
    facts = await _connect(operator.with_token(kubeconfig, token), tmp_path)
    assert facts.dra_version == "v1"


async def _connect(kubeconfig: str, folder: Path, **settings: bool) -> ClusterFacts:
    cluster = await cluster_from("prod-eu", kubeconfig, folder, **settings)
    try:
        return await cluster.connect()
    finally:
        await cluster.pool.close()


def _name_of(document: Json) -> Json:
    return {key: document["metadata"][key] for key in ("name", "namespace")}


def _broken(change: str, kubeconfig: str, of_another: str) -> str:
    if change == "token":
        return operator.without_user(kubeconfig)
    if change == "port":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            return _at(kubeconfig, free.getsockname()[1])
    authority = "certificate-authority-data"
    ours, theirs = (
        operator.kubeconfig_of(text)["clusters"][0]["cluster"][authority]
        for text in (kubeconfig, of_another)
    )
    return kubeconfig.replace(ours, theirs)


def _at(kubeconfig: str, port: int) -> str:
    return kubeconfig.replace(
        operator.server_of(kubeconfig), f"https://127.0.0.1:{port}"
    )


def _assert_contains_no_secret(text: str, kubeconfig: str) -> None:
    user = operator.kubeconfig_of(kubeconfig)["users"][0]["user"]
    assert not [
        value for value in ("never-issued-token", *user.values()) if value in text
    ]
