"""The hydration programs behind a company proxy with its own certificates.

The programs run with the environment and the mounted files of the rendered Job.
"""

import base64
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from activities.render.cache.volumes import render_cache
from activities.render.inputs.facts import CacheInput, ClusterInput
from activities.render.inputs.settings import RenderSettings
from tests.activities.render.builders import the
from tests.activities.render.cache.programs import MARKER
from tests.environment.connect_proxy import ConnectProxy, connect_proxy
from tests.environment.impostor import Certificate, a_certificate
from tests.environment.local_hub import LocalHub, Repo, a_commit, local_hub
from tests.environment.local_registry import LocalRegistry, install_kit, local_registry

pytestmark = pytest.mark.slow

# Host names that only the proxy resolves.
HUB, REGISTRY = "hub.acme.example", "registry.acme.example"
LOGIN = "robot:pa55word"
BUNDLE = {"configMapKeyRef": {"name": "company-ca", "key": "bundle.pem"}}
CA_FILE = "/etc/modelplane/ca/ca.crt"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return a_certificate(tmp_path_factory.mktemp("tls"), HUB, REGISTRY)


@pytest.fixture(scope="module")
def tls(certificate: Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    return context


@pytest.fixture
def hub(tls: ssl.SSLContext) -> Iterator[LocalHub]:
    with local_hub(tls) as hub:
        hub.repos = {"acme/tiny": Repo()}
        yield hub


@pytest.fixture
def registry(tls: ssl.SSLContext) -> Iterator[LocalRegistry]:
    with local_registry(tls=tls) as registry:
        yield registry


def run(
    folder: Path,
    certificate: Certificate,
    spec: dict[str, Any],
    revision: str,
    secrets: dict[str, str],
) -> tuple[int, str]:
    """Run the program of the rendered Job in a folder.

    Returns its exit code and log. The contents of copied Secrets are given by purpose.
    """
    cache = CacheInput("ml-team", "qwen", "uid-c", 1, "eu-1", spec, revision)
    settings = RenderSettings(hub_endpoint=f"https://{HUB}")
    rendered = render_cache(
        cache, ClusterInput.assumed("eu-1", storage_class_name="rwx"), settings
    )
    container = the(rendered, "cache-hydrate")["spec"]["template"]["spec"][
        "containers"
    ][0]
    volume, tools = folder / "volume", folder / "tools"
    for path in (volume, tools):
        path.mkdir()
    install_kit(tools)
    mounts = {"/mnt/artifact": str(volume), CA_FILE: str(certificate.certificate)}
    environment = {"PATH": f"{tools}:{os.environ['PATH']}"}
    for entry in container["env"]:
        value = entry.get("value")
        if value is None:
            purpose = entry["valueFrom"]["secretKeyRef"]["name"].rpartition("-")[2]
            value = secrets[purpose]
        for mounted, found in mounts.items():
            value = value.replace(mounted, found)
        environment[entry["name"]] = value
    program = (
        sys.executable
        if container["command"][0] == "python3"
        else container["command"][0]
    )
    ended = subprocess.run(
        [program, *container["command"][1:]],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stderr


def a_spec(**hydration: Any) -> dict[str, Any]:
    return {
        "source": "HuggingFace",
        "huggingFace": {"repo": "acme/tiny", "sizeGiB": 1},
        "hydration": hydration,
    }


def proxied(proxy: ConnectProxy) -> dict[str, Any]:
    return {"https": proxy.url, "http": proxy.url}


def address(hub: LocalHub) -> str:
    return hub.address.removeprefix("https://")


def test_a_repository_is_staged_through_a_proxy_with_a_certificate_of_a_private_authority(
    hub: LocalHub, certificate: Certificate, tmp_path: Path
) -> None:
    with connect_proxy({f"{HUB}:443": address(hub)}) as proxy:
        spec = a_spec(
            proxy=proxied(proxy), caBundle=BUNDLE, timeoutSeconds=20, disableXet=True
        )
        code, log = run(tmp_path, certificate, spec, a_commit("first"), {})
    assert code == 0, log
    assert (
        tmp_path / "volume" / "weights" / "model.safetensors"
    ).stat().st_size == 4096
    assert (tmp_path / "volume" / MARKER).exists()
    assert set(proxy.tunnels) == {f"{HUB}:443"}


def test_a_proxy_with_a_login_is_used_with_the_address_in_a_secret(
    hub: LocalHub, certificate: Certificate, tmp_path: Path
) -> None:
    with connect_proxy({f"{HUB}:443": address(hub)}, LOGIN) as proxy:
        spec = a_spec(
            proxy={"urlSecret": {"name": "proxy", "key": "url"}}, caBundle=BUNDLE
        )
        code, log = run(
            tmp_path, certificate, spec, a_commit("first"), {"proxy": proxy.url}
        )
    assert (code, proxy.refused) == (0, 0), log
    assert proxy.tunnels
    assert LOGIN.partition(":")[2] not in log


def test_a_refused_login_of_a_proxy_is_retried_and_not_shown(
    hub: LocalHub, certificate: Certificate, tmp_path: Path
) -> None:
    with connect_proxy({f"{HUB}:443": address(hub)}, LOGIN) as proxy:
        wrong = f"http://robot:wr0ng@{proxy.address}"
        code, log = run(
            tmp_path,
            certificate,
            a_spec(
                proxy={"urlSecret": {"name": "proxy", "key": "url"}}, caBundle=BUNDLE
            ),
            a_commit("first"),
            {"proxy": wrong},
        )
    assert (code, proxy.tunnels) == (1, []), log
    assert "407" in log
    assert "wr0ng" not in log
    assert base64.b64encode(b"robot:wr0ng").decode() not in log


def test_without_the_bundle_the_certificate_is_refused_and_without_the_proxy_the_hub_is_not_found(
    hub: LocalHub, certificate: Certificate, tmp_path: Path
) -> None:
    with connect_proxy({f"{HUB}:443": address(hub)}) as proxy:
        (tmp_path / "a").mkdir()
        code, log = run(
            tmp_path / "a",
            certificate,
            a_spec(proxy=proxied(proxy)),
            a_commit("first"),
            {},
        )
        assert (code, "CERTIFICATE_VERIFY_FAILED" in log) == (1, True), log
        (tmp_path / "b").mkdir()
        spec = a_spec(
            proxy={**proxied(proxy), "noProxy": ["acme.example"]}, caBundle=BUNDLE
        )
        before = len(proxy.tunnels)
        code, log = run(tmp_path / "b", certificate, spec, a_commit("first"), {})
        assert (code, len(proxy.tunnels)) == (1, before), log


def test_a_pack_is_unpacked_through_a_proxy_with_a_certificate_of_a_private_authority(
    registry: LocalRegistry, certificate: Certificate, tmp_path: Path
) -> None:
    digest = registry.push("models/qwen:1.0", {"model.bin": b"w" * 100})
    with connect_proxy({f"{REGISTRY}:443": registry.host}) as proxy:
        oci = {
            "source": "OCI",
            "oci": {"image": f"{REGISTRY}/models/qwen:1.0", "sizeGiB": 1},
        }
        code, log = run(
            tmp_path,
            certificate,
            {**oci, "hydration": {"proxy": proxied(proxy), "caBundle": BUNDLE}},
            digest,
            {},
        )
    assert code == 0, log
    assert (tmp_path / "volume" / "model.bin").read_bytes() == b"w" * 100
    assert set(proxy.tunnels) == {f"{REGISTRY}:443"}
