"""Secrets go to the store and nowhere else: no Temporal is running in these tests, so nothing could have reached it."""

import base64
from pathlib import Path

import pytest

from tests.client.conftest import Cli

VALUE = "s3cr3t-t0k3n"
SECRET = f"""
apiVersion: v1
kind: Secret
metadata: {{name: hub, namespace: ml-team}}
data: {{token: {base64.b64encode(VALUE.encode()).decode()}}}
stringData: {{user: ada}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: engine, namespace: ml-team}}
data: {{args: "--fast"}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The manifests."""
    path = tmp_path / "secrets.yaml"
    path.write_text(SECRET)
    return path


@pytest.mark.usefixtures("nowhere")
def test_ruling_86_apply_puts_secrets_and_config_maps_into_the_store_without_temporal(cli: Cli, file: Path, tmp_path: Path) -> None:
    result = cli("apply", "-f", str(file))
    assert (result.code, result.out) == (0, "secret/hub created\nconfigmap/engine created\n")
    stored = tmp_path / "secrets" / "ml-team"
    assert (stored / "hub" / "token").read_text() == VALUE
    assert (stored / "hub" / "user").read_text() == "ada"
    assert (stored / "engine" / "args").read_text() == "--fast"
    assert (stored / "hub" / "token").stat().st_mode & 0o777 == 0o600
    assert VALUE not in result.out + result.err


@pytest.mark.usefixtures("nowhere")
def test_applying_again_says_what_changed(cli: Cli, file: Path) -> None:
    cli("apply", "-f", str(file))
    assert cli("apply", "-f", str(file)).out == "secret/hub unchanged\nconfigmap/engine unchanged\n"
    file.write_text(SECRET.replace("--fast", "--slow"))
    assert cli("apply", "-f", str(file)).out == "secret/hub unchanged\nconfigmap/engine configured\n"


@pytest.mark.usefixtures("nowhere")
def test_a_value_that_is_no_base64_is_refused_without_being_shown(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(SECRET.replace(base64.b64encode(VALUE.encode()).decode(), f"%{VALUE}%"))
    result = cli("apply", "-f", str(file))
    assert result.code == 2
    assert "base64" in result.err
    assert VALUE not in result.err
    assert not (tmp_path / "secrets" / "ml-team").exists()


@pytest.mark.usefixtures("nowhere")
def test_delete_takes_them_out_of_the_store(cli: Cli, file: Path, tmp_path: Path) -> None:
    cli("apply", "-f", str(file))
    result = cli("delete", "-f", str(file))
    assert (result.code, result.out) == (0, "configmap/engine deleted\nsecret/hub deleted\n")
    assert not (tmp_path / "secrets" / "ml-team" / "hub").exists()
    again = cli("delete", "-f", str(file))
    assert again.code == 3
    assert "Secret ml-team/hub does not exist in the secret store" in again.err
    assert again.err.splitlines()[-1] == "next: check its name and namespace in the file, or delete with --ignore-not-found"
    assert cli("delete", "-f", str(file), "--ignore-not-found").code == 0


@pytest.mark.usefixtures("nowhere")
def test_deleting_a_config_map_leaves_the_secret_of_that_name(cli: Cli, file: Path, tmp_path: Path) -> None:
    cli("apply", "-f", str(file))
    other = tmp_path / "other.yaml"
    other.write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: hub, namespace: ml-team}}")
    result = cli("delete", "-f", str(other))
    assert (result.code, result.out) == (3, "")
    assert "ConfigMap ml-team/hub does not exist in the secret store" in result.err
    assert (tmp_path / "secrets" / "ml-team" / "hub" / "token").read_text() == VALUE


@pytest.mark.usefixtures("nowhere")
def test_a_store_that_cannot_be_changed_is_an_error_and_no_traceback(cli: Cli, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("apply", "-f", str(file))

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuse)
    result = cli("delete", "-f", str(file))
    assert result.code == 1
    assert "secret/hub could not be deleted: Permission denied" in result.err
