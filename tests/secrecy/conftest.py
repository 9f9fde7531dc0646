"""Fixtures: a Temporal server, a verbose worker and one cluster behind a quoting proxy
per test.
"""

import base64
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import yaml
from kubernetes.client import ApiClient

from testbed.cluster.pki import Authority
from testbed.running import ClusterRunning, Running
from tests.secrecy.environment.echo import (
    EchoingHost,
    EchoingProxy,
    echoing_host,
    echoing_proxy,
)
from tests.secrecy.environment.plane import CLUSTER, SecretPlane, secret_plane


@pytest.fixture
async def proxy(testbed: Running) -> AsyncIterator[EchoingProxy]:
    kubeconfig = yaml.safe_load(testbed.clusters[CLUSTER].kubeconfig.read_text())
    user, cluster = kubeconfig["users"][0]["user"], kubeconfig["clusters"][0]["cluster"]
    trust = ssl.create_default_context(
        cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
    )
    pair = testbed.home / "echoing-proxy.pem"
    pair.touch(mode=0o600)
    pair.write_bytes(
        base64.b64decode(user["client-certificate-data"])
        + base64.b64decode(user["client-key-data"])
    )
    trust.load_cert_chain(pair)
    own = Authority(testbed.home / "clusters" / CLUSTER / "pki").pair("apiserver")
    serve = ssl.create_default_context(
        ssl.Purpose.CLIENT_AUTH,
        cadata=base64.b64decode(cluster["certificate-authority-data"]).decode(),
    )
    serve.load_cert_chain(own.certificate, own.key)
    serve.verify_mode = ssl.CERT_OPTIONAL
    async with echoing_proxy(cluster["server"], trust, serve) as made:
        made.authority = cluster["certificate-authority-data"]
        made.certificate = {
            key: user[key] for key in ("client-certificate-data", "client-key-data")
        }
        yield made


@pytest.fixture
async def plane(
    testbed: Running,
    kube: Callable[[ClusterRunning], ApiClient],
    proxy: EchoingProxy,
    echo: EchoingHost,
    tmp_path: Path,
) -> AsyncIterator[SecretPlane]:
    """Return the encrypted control plane with a Ready cluster and a quoting hub."""
    settings = {
        "MODELPLANE_CACHE__HUB_ENDPOINT": f"http://{echo.address}",
        "MODELPLANE_OCI__ALLOW_PLAIN_HTTP": "true",
        "MODELPLANE_OUTBOUND__PRIVATE_ADDRESSES": '["127.0.0.0/8"]',
    }
    async with secret_plane(testbed, kube, proxy, tmp_path, **settings) as made:
        yield made


@pytest.fixture
def echo() -> Iterator[EchoingHost]:
    """Return a hub and registry that quotes requests."""
    with echoing_host() as host:
        yield host
