"""The kubeconfig for helm has values only, and a token that outlives the run."""

import base64
import json
import stat
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from activities.clients.helm.command import OPERATION_SECONDS
from activities.clients.helm.kubeconfig_file import TOKEN_SECONDS, KubeconfigFile
from activities.clients.kubernetes.kubeconfig import (
    ApiServerAccess,
    ExecPlugin,
    parse_kubeconfig,
)
from api_types.errors import CredentialsInvalid
from api_types.sections.clusters import KubeconfigSettings
from tests.activities.clients.helm.conftest import Script

AUTHORITY = "-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\n"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nQg==\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nQw==\n-----END PRIVATE KEY-----\n"
API_VERSION = "client.authentication.k8s.io/v1"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def written(folder: Path, access: ApiServerAccess) -> Any:
    file = KubeconfigFile(folder, access, "eu-1")
    await file.refresh()
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    document = json.loads(file.path.read_text())
    assert document["current-context"] == document["contexts"][0]["name"]
    assert document["contexts"][0]["context"] == {
        "cluster": document["clusters"][0]["name"],
        "user": document["users"][0]["name"],
    }
    return document


def user_and_cluster(document: Any) -> tuple[Any, Any]:
    (user,), (cluster,) = document["users"], document["clusters"]
    return user["user"], cluster["cluster"]


async def test_a_client_certificate_is_written_as_values(tmp_path: Path) -> None:
    access = ApiServerAccess(
        "https://10.0.0.1:6443",
        AUTHORITY,
        CERTIFICATE,
        KEY,
        server_name="api.example.com",
    )
    assert user_and_cluster(await written(tmp_path, access)) == (
        {
            "client-certificate-data": encoded(CERTIFICATE),
            "client-key-data": encoded(KEY),
        },
        {
            "server": "https://10.0.0.1:6443",
            "certificate-authority-data": encoded(AUTHORITY),
            "tls-server-name": "api.example.com",
        },
    )


async def test_a_token_is_written_and_nothing_that_is_not_set(tmp_path: Path) -> None:
    access = ApiServerAccess("https://10.0.0.1:6443", token="fixed-token")  # noqa: S106
    assert user_and_cluster(await written(tmp_path, access)) == (
        {"token": "fixed-token"},
        {"server": "https://10.0.0.1:6443"},
    )


async def test_without_credential_the_file_is_written_too(tmp_path: Path) -> None:
    assert user_and_cluster(
        await written(tmp_path, ApiServerAccess("https://10.0.0.1:6443"))
    ) == ({}, {"server": "https://10.0.0.1:6443"})


async def test_a_written_kubeconfig_is_read_back_as_the_same_access(
    tmp_path: Path,
) -> None:
    access = ApiServerAccess(
        "https://10.0.0.1:6443",
        token="fixed-token",  # noqa: S106
        server_name="api.example.com",
        name="cluster",
    )
    text = json.dumps(await written(tmp_path, access))
    assert parse_kubeconfig(text, KubeconfigSettings(), "written") == access


def plugin(script: Script, folder: Path, lives_seconds: float) -> ExecPlugin:
    """A credential plugin that returns the token of a file, and records each call."""
    expires = datetime.fromtimestamp(time.time() + lives_seconds, UTC).isoformat()
    answer = {
        "apiVersion": API_VERSION,
        "kind": "ExecCredential",
        "status": {"token": "TOKEN", "expirationTimestamp": expires},
    }
    before, _, after = json.dumps(answer).partition("TOKEN")
    program = script(
        (
            f"echo >> {folder}/calls; printf '%s' '{before}'; cat {folder}/token; "
            f"printf '%s' '{after}'"
        ),
        name="plugin",
    )
    return ExecPlugin(program, api_version=API_VERSION)


async def test_a_credential_plugin_is_run_here_and_is_not_in_the_file(
    script: Script, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("first-token")
    access = ApiServerAccess(
        "https://10.0.0.1:6443", plugin=plugin(script, tmp_path, 2 * TOKEN_SECONDS)
    )
    document = await written(tmp_path, access)
    assert user_and_cluster(document)[0] == {"token": "first-token"}
    assert "exec" not in json.dumps(document)
    assert access.plugin is not None
    assert access.plugin.command not in json.dumps(document)


async def test_a_token_is_renewed_only_if_it_is_too_old_for_a_run(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("first-token")
    file = KubeconfigFile(
        tmp_path,
        ApiServerAccess(
            "https://10.0.0.1:6443", plugin=plugin(script, tmp_path, 4 * TOKEN_SECONDS)
        ),
        "eu-1",
    )
    await file.refresh()
    before = file.path.stat().st_ino
    await file.refresh()
    assert ((tmp_path / "calls").read_text(), file.path.stat().st_ino) == ("\n", before)
    (tmp_path / "token").write_text("second-token")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3.5 * TOKEN_SECONDS)
    plugin(script, tmp_path, 2 * TOKEN_SECONDS)
    await file.refresh()
    assert json.loads(file.path.read_text())["users"][0]["user"] == {
        "token": "second-token"
    }
    assert file.secrets() == ["second-token"]
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


async def test_a_token_that_may_expire_within_a_run_is_refused(
    script: Script, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("short-token")
    file = KubeconfigFile(
        tmp_path,
        ApiServerAccess(
            "https://10.0.0.1:6443", plugin=plugin(script, tmp_path, TOKEN_SECONDS - 60)
        ),
        "eu-1",
    )
    with pytest.raises(CredentialsInvalid) as raised:
        await file.refresh()
    assert "short-token" not in raised.value.message
    assert not file.path.exists()


def test_a_token_is_valid_for_twice_the_longest_run() -> None:
    assert (OPERATION_SECONDS, TOKEN_SECONDS) == (300, 600)
