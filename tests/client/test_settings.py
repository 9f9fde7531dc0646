"""The settings that a command uses."""

import os
import re
from pathlib import Path

import pytest

from api_types.environment import CONFIG_VARIABLE, OTHERS, is_setting
from api_types.sections.clusters import SecretSettings
from api_types.sections.temporal import TemporalSettings
from api_types.settings import Settings
from client.failures import report
from fleet_client.configuration import (
    home_folder,
    load_settings,
    local_settings_file,
    write_settings,
)
from fleet_client.errors import CommandFailed, Refused
from fleet_client.temporal.connection import connect
from fleet_client.temporal.links import list_link
from testbed.__main__ import default_home
from tests.client.conftest import Cli


def test_the_fleet_of_this_machine_is_found_without_naming_it(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MODELPLANE_TEMPORAL__ADDRESS")
    write_settings(local_settings_file(), {"temporal": {"address": "127.0.0.1:4711"}})
    assert local_settings_file().parent == nowhere
    assert load_settings().temporal.address == "127.0.0.1:4711"
    assert CONFIG_VARIABLE not in os.environ


@pytest.mark.usefixtures("nowhere")
def test_a_named_file_wins_over_the_fleet_of_this_machine_and_the_environment_over_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings(
        local_settings_file(),
        {"temporal": {"address": "127.0.0.1:4711"}, "log": {"level": "debug"}},
    )
    write_settings(
        tmp_path / "mine.yaml",
        {"temporal": {"address": "example.com:7233", "namespace": "fleet"}},
    )
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "mine.yaml"))
    settings = load_settings()
    assert (
        settings.temporal.address,
        settings.temporal.namespace,
        settings.log.level,
    ) == ("127.0.0.1:1", "fleet", "info")


@pytest.mark.usefixtures("nowhere")
def test_settings_are_for_their_owner_alone() -> None:
    write_settings(local_settings_file(), {"log": {"level": "debug"}})
    assert local_settings_file().stat().st_mode & 0o777 == 0o600


BAD = [
    (
        "an unknown key",
        "temporal: {adress: x}\n",
        "temporal.adress: there is no such setting",
    ),
    (
        "a wrong value",
        "worker: {gracefulShutdownSeconds: soon}\n",
        "worker.gracefulShutdownSeconds",
    ),
    (
        "a network that is none",
        "outbound: {privateAddresses: [10.0.0.1/8]}\n",
        "outbound.privateAddresses.0: value is not a valid IPv4 or IPv6 network",
    ),
    ("no YAML", "temporal: [\n", "line 2: not YAML"),
    ("no mapping", "- temporal\n", "must hold a mapping"),
    ("a key that is no text", "1: temporal\n", "must hold a mapping"),
    ("a key twice", "log: {}\nlog: {}\n", "line 2: a key is given twice"),
    (
        "aliases of themselves",
        "log: &a {level: *a}\n",
        "nested more than 64 levels deep",
    ),
    (
        "a password that looks like a tag",
        "temporal: {address: !hunter2 }\n",
        "line 1: a tag that is not supported",
    ),
]


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(("story", "text", "say"), BAD, ids=[row[0] for row in BAD])
def test_a_bad_settings_file_is_refused_with_the_key(
    cli: Cli, tmp_path: Path, story: str, text: str, say: str
) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    result = cli("--config", str(tmp_path / "bad.yaml"), "get", "md")
    assert result.code == 2, story
    assert say in result.err
    assert "hunter2" not in result.err


@pytest.mark.usefixtures("nowhere")
def test_a_settings_file_that_is_not_there_is_reported(cli: Cli) -> None:
    result = cli("--config", "/nope.yaml", "get", "md")
    assert (result.code, result.err.splitlines()[0]) == (
        2,
        "error: there is no settings file /nope.yaml",
    )


def test_the_home_follows_the_usual_folders(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MODELPLANE_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert home_folder() == default_home() == tmp_path / "modelplane" / "testbed"
    assert home_folder() != SecretSettings().directory.expanduser()
    monkeypatch.setenv("MODELPLANE_HOME", "~/fleet")
    assert home_folder() == default_home() == Path("~/fleet").expanduser()
    monkeypatch.setenv("MODELPLANE_HOME", "")
    monkeypatch.setenv("XDG_DATA_HOME", "")
    assert home_folder() == default_home()


BAD_VARIABLES = {
    "MODELPLANE_CACHE": "cache: this is a group of settings",
    "MODELPLANE_TEARDOWN__DRAIN_SECONDS": "teardown.drainSeconds: Input should be a valid integer",
    "MODELPLANE_WORKER__LISTENS": (
        "MODELPLANE_WORKER__LISTENS: there is no such setting; did you mean "
        "MODELPLANE_WORKER__LISTEN?"
    ),
    "MODELPLANE_TEMPORAL_ADDRESS": (
        "MODELPLANE_TEMPORAL_ADDRESS: there is no such setting; did you mean "
        "MODELPLANE_TEMPORAL__ADDRESS?"
    ),
    "MODELPLANE_CONTROLCLUSTER__NAME": (
        "there is no such setting; did you mean MODELPLANE_CONTROL_CLUSTER__NAME?"
    ),
    "MODELPLANE_TEMPORAL__ADDRESS__HOST": (
        "MODELPLANE_TEMPORAL__ADDRESS__HOST: there is no such setting"
    ),
    "MODELPLANE_HOMES": "MODELPLANE_HOMES: there is no such setting; did you mean MODELPLANE_HOME?",
    "MODELPLANE_NOTHING_LIKE_IT": "MODELPLANE_NOTHING_LIKE_IT: there is no such setting\n",
}


@pytest.mark.parametrize("command", [("get", "md"), ("up",)], ids=" ".join)
def test_bad_variables_are_all_reported_before_anything_starts(
    cli: Cli, nowhere: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in BAD_VARIABLES:
        monkeypatch.setenv(variable, "secret")
    result = cli(*command)
    assert result.code == 2
    assert [text for text in BAD_VARIABLES.values() if text not in result.err] == []
    assert "secret" not in result.err
    assert not nowhere.exists()


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("MODELPLANE_EPP__IMAGES", "did you mean MODELPLANE_EPP__IMAGE?"),
        ("MODELPLANE_TRACING__ENABLED__NOW", "there is no such setting"),
        (
            "MODELPLANE_IMAGES__PULLSECRETS",
            "did you mean MODELPLANE_IMAGES__PULL_SECRETS?",
        ),
    ],
)
def test_rendering_also_rejects_an_unknown_variable(
    cli: Cli, variable: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "x")
    result = cli("render", "-f", "examples/testbed/demo.yaml")
    assert result.code == 2
    assert f"{variable}: there is no such setting" in result.err
    assert says in result.err


FOREIGN = [
    "KUBECONFIG",
    "TEMPORAL",
    "LOG",
    "CACHE",
    "WORKER",
    "CLUSTER",
    "CONTROLCLUSTER",
    "ENCRYPTION",
    "SECRETS",
    "TEMPORAL__ADDRESS",
]


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    "variable",
    [
        "modelplane_log__level",
        "Modelplane_Log__Level",
        "MODELPLANE_log__level",
        "modelplane_log",
    ],
)
def test_a_lower_case_variable_is_rejected_with_its_spelling(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "debug")
    with pytest.raises(CommandFailed) as caught:
        load_settings()
    assert (
        f"{variable}: there is no such setting; did you mean {variable.upper()}?"
        in report(caught.value)
    )


@pytest.mark.usefixtures("nowhere")
def test_the_entries_of_a_mapping_keep_their_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MODELPLANE_ENCRYPTION__KEYS__Prod2025", "/a")
    monkeypatch.setenv("MODELPLANE_ENCRYPTION__KEYS__OLD", "/b")
    monkeypatch.setenv("MODELPLANE_ENCRYPTION__ACTIVE_KEY", "Prod2025")
    settings = load_settings()
    assert (
        settings.encryption.active_key,
        {name: str(path) for name, path in settings.encryption.keys.items()},
    ) == (
        "Prod2025",
        {"Prod2025": "/a", "old": "/b"},
    )


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    "entries", [("Prod", "prod"), ("prod", "Prod")], ids=" then ".join
)
def test_entries_that_differ_only_in_case_are_separate(
    entries: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in either order: otherwise one of two keys would be lost without a
    message.
    """
    for entry in entries:
        monkeypatch.setenv(f"MODELPLANE_ENCRYPTION__KEYS__{entry}", f"/{entry}")
    assert load_settings().encryption.keys == {
        "Prod": Path("/Prod"),
        "prod": Path("/prod"),
    }


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("value", ["no JSON", "[1]"])
@pytest.mark.parametrize("group", ["encryption", "workloads"])
def test_a_group_of_settings_must_be_a_mapping(
    cli: Cli, group: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"MODELPLANE_{group.upper()}", value)
    result = cli("get", "md")
    assert result.code == 2
    assert f"{group}: this is a group of settings" in result.err


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    "variable",
    [*FOREIGN, "LOG__LEVEL", "controlCluster__name", "MY_MODELPLANE_LOG__LEVEL"],
)
def test_a_variable_without_the_prefix_is_ignored(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load_settings()
    monkeypatch.setenv(variable, "debug")
    assert load_settings() == before


@pytest.mark.parametrize("variable", OTHERS)
def test_other_variables_of_the_project_are_ignored(
    variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(variable, str(tmp_path / "file"))
    assert Settings().log.level == "info"
    assert not is_setting(Settings, variable)


def test_a_variable_overrides_the_file_in_its_own_spelling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings(
        tmp_path / "mine.yaml",
        {
            "controlCluster": {"name": "a", "namespace": "n"},
            "temporal": {"apiKeyFile": "/a", "namespace": "f"},
        },
    )
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "mine.yaml"))
    monkeypatch.setenv("MODELPLANE_CONTROL_CLUSTER__NAME", "b")
    monkeypatch.setenv("MODELPLANE_TEMPORAL__API_KEY_FILE", "/b")
    monkeypatch.setenv("MODELPLANE_ENCRYPTION__KEYS__K1", "/k1")
    settings = load_settings()
    assert (settings.control_cluster.namespace, settings.control_cluster.name) == (
        "n",
        "b",
    )
    assert (settings.temporal.namespace, settings.temporal.api_key_file) == (
        "f",
        Path("/b"),
    )
    assert settings.encryption.keys == {"k1": Path("/k1")}


def test_a_group_of_settings_may_stand_in_one_variable(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MODELPLANE_TEMPORAL__ADDRESS")
    monkeypatch.setenv("MODELPLANE_TEMPORAL", '{"address": "example.com:7233"}')
    monkeypatch.setenv("MODELPLANE_TEMPORAL__NAMESPACE", "fleet")
    assert not nowhere.exists()
    assert (load_settings().temporal.address, load_settings().temporal.namespace) == (
        "example.com:7233",
        "fleet",
    )


# Variables that the product sets in containers of engines and staging jobs, in which no
# program of the product reads settings.
OF_CONTAINERS = {
    f"MODELPLANE_{name}"
    for name in (
        "ALLOW_PATTERNS",
        "ARTEFACT_KEY",
        "CLIENT_REQUIREMENTS",
        "IGNORE_PATTERNS",
        "IMAGE",
        "LEADER_ADDRESS",
        "PLAIN_HTTP",
        "RANK",
        "REPO",
        "REVISION",
        "TARGET",
    )
}
ROOT = Path(__file__).parents[2]
SOURCES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("*.py"),
    ROOT / "Makefile",
    *(
        file
        for folder in (
            "activities",
            "api_types",
            "client",
            "deploy",
            "docs",
            "examples",
            "fleet_client",
            "front",
            "scheduler",
            "testbed",
            "workflows",
        )
        for pattern in ("*.py", "*.md", "*.yaml")
        for file in (ROOT / folder).rglob(pattern)
    ),
    *(
        ROOT / "tests" / name
        for name in ("conftest.py", "random_cases.py", "environment/shared_testbed.py")
    ),
]


def test_every_variable_that_the_project_names_is_a_setting_or_known_to_be_none() -> (
    None
):
    named = {
        variable
        for file in SOURCES
        for variable in re.findall(
            r"\bMODELPLANE_(?!ENV_PREFIX)[A-Z][A-Z_]*[A-Z]\b", file.read_text()
        )
    }
    assert set(OTHERS) | OF_CONTAINERS <= named
    assert (
        sorted(
            variable
            for variable in named - set(OTHERS) - OF_CONTAINERS
            if not is_setting(Settings, variable)
        )
        == []
    )


async def test_half_a_tls_pair_is_refused() -> None:
    settings = Settings(
        temporal=TemporalSettings(tls_client_cert=Path("/tmp/cert.pem"))  # noqa: S108 - never read
    )
    with pytest.raises(Refused, match="needs its key"):
        await connect(settings)


@pytest.mark.parametrize("field", ["tls_server_ca", "api_key_file"])
async def test_a_file_that_cannot_be_read_is_named_with_its_setting(field: str) -> None:
    settings = Settings(temporal=TemporalSettings.model_validate({field: "/nope"}))
    with pytest.raises(Refused, match=r"temporal\.\w+: cannot read /nope"):
        await connect(settings)


def test_the_address_of_the_ui_is_the_setting_or_that_of_a_dev_server() -> None:
    assert (
        list_link(Settings(temporal=TemporalSettings(ui="http://ui/")))
        == "http://ui/namespaces/default/workflows"
    )
    at_default = Settings(
        temporal=TemporalSettings(address="10.0.0.7:7233", namespace="a b")
    )
    assert list_link(at_default) == "http://10.0.0.7:8233/namespaces/a%20b/workflows"
