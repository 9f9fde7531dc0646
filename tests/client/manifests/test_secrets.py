"""Secrets are written to the store only: no Temporal runs in these tests."""

import base64
import json
from pathlib import Path

import pytest

from api_types.sections.clouds import ProvisionSettings
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
def test_apply_puts_secrets_and_config_maps_into_the_store_without_temporal(
    cli: Cli, file: Path, tmp_path: Path
) -> None:
    result = cli("apply", "-f", str(file))
    assert (result.code, result.out) == (
        0,
        "secret/hub created\nconfigmap/engine created\n",
    )
    stored = tmp_path / "secrets" / "ml-team"
    assert (stored / "hub" / "token").read_text() == VALUE
    assert (stored / "hub" / "user").read_text() == "ada"
    assert (stored / "engine" / "args").read_text() == "--fast"
    assert (stored / "hub" / "token").stat().st_mode & 0o777 == 0o600
    assert VALUE not in result.out + result.err


@pytest.mark.usefixtures("nowhere")
def test_a_second_apply_reports_the_changes(cli: Cli, file: Path) -> None:
    cli("apply", "-f", str(file))
    assert (
        cli("apply", "-f", str(file)).out
        == "secret/hub unchanged\nconfigmap/engine unchanged\n"
    )
    file.write_text(SECRET.replace("--fast", "--slow"))
    assert (
        cli("apply", "-f", str(file)).out
        == "secret/hub unchanged\nconfigmap/engine configured\n"
    )


@pytest.mark.usefixtures("nowhere")
def test_a_value_that_is_not_base64_is_rejected_and_not_shown(
    cli: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(
        SECRET.replace(base64.b64encode(VALUE.encode()).decode(), f"{VALUE}%")
    )
    result = cli("apply", "-f", str(file))
    assert result.code == 2
    assert "data.token: value is not base64" in result.err
    assert VALUE not in result.err
    assert not (tmp_path / "secrets" / "ml-team").exists()


@pytest.mark.usefixtures("nowhere")
def test_delete_takes_them_out_of_the_store(
    cli: Cli, file: Path, tmp_path: Path
) -> None:
    cli("apply", "-f", str(file))
    result = cli("delete", "-f", str(file))
    assert (result.code, result.out) == (
        0,
        "configmap/engine deleted\nsecret/hub deleted\n",
    )
    assert not (tmp_path / "secrets" / "ml-team" / "hub").exists()
    again = cli("delete", "-f", str(file))
    assert again.code == 3
    assert "Secret ml-team/hub does not exist in the secret store" in again.err
    assert (
        again.err.splitlines()[-1]
        == "next: check its name and namespace in the file, or delete with --ignore-not-found"
    )
    assert cli("delete", "-f", str(file), "--ignore-not-found").code == 0


@pytest.mark.usefixtures("nowhere")
def test_deleting_a_config_map_leaves_the_secret_of_that_name(
    cli: Cli, file: Path, tmp_path: Path
) -> None:
    cli("apply", "-f", str(file))
    other = tmp_path / "other.yaml"
    other.write_text(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: hub, namespace: ml-team}}"
    )
    result = cli("delete", "-f", str(other))
    assert (result.code, result.out) == (3, "")
    assert "ConfigMap ml-team/hub does not exist in the secret store" in result.err
    assert (tmp_path / "secrets" / "ml-team" / "hub" / "token").read_text() == VALUE


@pytest.mark.usefixtures("nowhere")
def test_a_store_that_cannot_be_changed_is_an_error_and_no_traceback(
    cli: Cli, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("apply", "-f", str(file))

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuse)
    result = cli("delete", "-f", str(file))
    assert result.code == 1
    assert "secret/hub could not be deleted: Permission denied" in result.err


def a_credential(
    name: str = "gke-default",
    namespace: str = "modelplane-system",
    key: str = "credentials",
) -> str:
    metadata = {"name": name, "namespace": namespace}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "stringData": {key: "a key"},
        }
    )


def stored_id(folder: Path) -> str | None:
    found = folder / "secrets" / "modelplane-system" / "modelplane-installation" / "id"
    return found.read_text() if found.exists() else None


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("name", ["gke-default", "eks-ns-prod"])
def test_the_first_credential_of_a_cloud_gets_an_id_of_the_installation(
    cli: Cli, tmp_path: Path, name: str
) -> None:
    file = tmp_path / "credential.json"
    file.write_text(a_credential(name))
    assert cli("apply", "-f", str(file)).out.splitlines() == [
        "secret/modelplane-installation created",
        f"secret/{name} created",
    ]
    made = stored_id(tmp_path)
    assert made is not None
    assert ProvisionSettings(installation_id=made).installation_id == made
    file.write_text(a_credential("gke-other"))
    assert cli("apply", "-f", str(file)).out == "secret/gke-other created\n"
    assert stored_id(tmp_path) == made


OTHERS = [
    a_credential("kube"),
    a_credential(namespace="default"),
    a_credential(key="kubeconfig"),
]


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    "text", OTHERS, ids=["another Secret", "another namespace", "another key"]
)
def test_other_secrets_store_no_installation_id(
    cli: Cli, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "secret.json"
    file.write_text(text)
    assert cli("apply", "-f", str(file)).code == 0
    assert stored_id(tmp_path) is None


@pytest.mark.usefixtures("nowhere")
def test_an_id_in_the_settings_is_enough(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELPLANE_PROVISION__INSTALLATION_ID", "fleet-1")
    file = tmp_path / "credential.json"
    file.write_text(a_credential())
    assert cli("apply", "-f", str(file)).out == "secret/gke-default created\n"
    assert stored_id(tmp_path) is None
