"""The commands of docs/how-to/local-fleets.md create clusters at fake clouds, and delete them."""

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from api_types.resources.kinds import KindInfo
from client.commands.local import up
from client.failures import ExitCode
from client.local import clouds
from fleet_client.errors import Refused
from fleet_client.refs.seen import ListedObject
from fleet_client.refs.targets import Target
from fleet_client.temporal.control_plane import ControlPlane
from testbed.fake_clouds import folder
from testbed.fleet.fleet_file import FleetFile
from testbed.fleet.home import Home
from tests.client.commands.local_fleet import modelplane, processes_of
from tests.client.commands.test_local import FLEET
from tests.client.conftest import Cli
from tests.environment.waiting import TIMEOUT_SECONDS

ROOT = Path(__file__).parents[3]
NOTHING = (
    "Google Cloud, project fake-project: no objects\n"
    "AWS, account 100000000001: no objects\n"
)


SOURCES = {"eemshaven": "GKE", "columbus": "EKS", "only": "Existing"}


def shown_commands() -> Iterator[list[str]]:
    """Return the commands of a section of docs/how-to/local-fleets.md.

    They do not have the name of the program.
    """
    section = (
        (ROOT / "docs" / "how-to" / "local-fleets.md")
        .read_text()
        .partition("## Clusters that are created\n")[2]
        .partition("\n## ")[0]
    )
    for line in section.partition("```sh\n")[2].partition("```")[0].splitlines():
        program, *words = shlex.split(line, comments=True)
        assert program == "modelplane"
        yield words


@pytest.mark.long
@pytest.mark.testbed("shared")
@pytest.mark.timeout(1200)
def test_the_commands_of_the_readme_create_clusters_at_both_clouds_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    home = tmp_path / "home"
    home.mkdir()
    # One small cluster instead of the built-in fleet, as after an earlier `up --fleet`.
    (home / "fleet.yaml").write_text(f"control: false\n{FLEET}")
    said: list[str] = []
    try:
        for words in shown_commands():
            waits = ["--timeout", f"{TIMEOUT_SECONDS:.0f}"] if "--wait" in words else []
            ended = modelplane(home, *words, *waits)
            assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
            said.append(ended.stdout)
        up, applied, there, _, calls = said
        assert f"Fake clouds   {sys.executable} -m client.main clouds\n" in up
        assert re.search(
            r"fake-gke +KUBECONFIG=\S+/clusters/fake-gke/admin.kubeconfig", up
        )
        assert "inferencecluster/fake-gke" not in up
        assert "modeldeployment/small created" in applied
        assert re.search(
            r"^Google Cloud, project fake-project: \d+ objects$", there, re.MULTILINE
        )
        assert re.search(
            r"^  projects/fake-project/locations/europe-west4/clusters/eemshaven-\w{8}$",
            there,
            re.MULTILINE,
        )
        assert re.search(r"^  eks/cluster/columbus-\w{8}$", there, re.MULTILINE)
        assert in_order(
            calls,
            "container.create_cluster ",
            "container.delete_cluster ",
            "compute.networks.delete ",
        )
        assert in_order(
            calls, "eks.CreateCluster ", "eks.DeleteCluster ", "ec2.DeleteVpc "
        )
        assert modelplane(home, "clouds").stdout == NOTHING
        assert modelplane(home, "get", "ic", "-o", "name").stdout.split() == [
            "inferencecluster/only"
        ]
    finally:
        wiped = modelplane(home, "down", "--wipe")
    assert wiped.returncode == 0, wiped.stderr
    assert processes_of(home) == []


def in_order(text: str, *parts: str) -> bool:
    """Return whether these parts follow one another in a text."""
    places = [text.find(part) for part in parts]
    return -1 not in places and places == sorted(places)


def test_fake_clouds_run_from_the_first_request_until_they_are_disabled(
    tmp_path: Path,
) -> None:
    fleet = FleetFile.load()
    assert clouds.with_clouds(tmp_path, fleet, wanted=None) == fleet
    with_both = clouds.with_clouds(tmp_path, fleet, wanted=True)
    assert [cluster.cloud for cluster in with_both.clusters] == ["", "", "GKE", "EKS"]
    folder(Home(tmp_path)).mkdir()
    assert clouds.with_clouds(tmp_path, fleet, wanted=None) == with_both
    assert clouds.with_clouds(tmp_path, fleet, wanted=False) == fleet
    assert clouds.with_clouds(tmp_path, fleet, wanted=None) == fleet


def test_without_moto_the_error_names_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        clouds, "find_spec", lambda name: None if name == "moto" else name
    )
    with pytest.raises(Refused, match="not installed: moto") as refused:
        clouds.with_clouds(tmp_path, FleetFile.load(), wanted=True)
    assert "pip install 'modelplane-temporal[dev]'" in refused.value.next_step


def test_an_installed_package_has_no_fake_clouds_and_names_the_source_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        clouds, "find_spec", lambda name: None if name == "fakes" else name
    )
    with pytest.raises(Refused, match="not part of the installed package") as refused:
        clouds.with_clouds(tmp_path, FleetFile.load(), wanted=True)
    assert "a clone of the repository" in refused.value.next_step
    assert clouds.with_clouds(tmp_path, FleetFile.load(), wanted=None)


class Listing:
    """A control plane with one cluster of each source, and one cluster that did not
    answer.
    """

    async def list(self, kind: KindInfo, namespace: str | None) -> list[ListedObject]:
        del namespace
        trees: dict[str, Any] = {
            name: {"spec": {"cluster": {"source": source}}}
            for name, source in SOURCES.items()
        }
        return [
            ListedObject(Target.of(kind, None, name), tree)
            for name, tree in {**trees, "silent": {}}.items()
        ]


async def test_lost_clusters_are_named_with_a_next_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        clouds, "fake_clouds", lambda: [a_cloud("GKE"), a_cloud("EKS", "ec2/vpc/vpc-1")]
    )
    await up._clouds(cast(ControlPlane, Listing()))
    said = capsys.readouterr().out
    assert " retry ic/eemshaven\n" in said
    assert [name for name in ("columbus", "only", "silent") if name in said] == []


def a_cloud(source: str, *objects: str) -> clouds.FakeCloud:
    """A fake cloud with these objects."""
    return clouds.FakeCloud(source, source, "here", list(objects), [])


@pytest.mark.parametrize("words", [(), ("--calls",)], ids=["objects", "calls"])
def test_objects_are_shown_by_cloud(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, words: Sequence[str]
) -> None:
    google = clouds.FakeCloud(
        "GKE", "Google Cloud", "project p", ["a", "b"], ["compute.networks.insert a"]
    )
    aws = clouds.FakeCloud("EKS", "AWS", "account 1 in r", [], [])
    monkeypatch.setattr(clouds, "fake_clouds", lambda: [google, aws])
    objects = "Google Cloud, project p: 2 objects\n  a\n  b\nAWS, account 1 in r: no objects\n"
    calls = (
        "Google Cloud, project p: 1 calls that changed something\n  compute.networks.insert a\n"
        "AWS, account 1 in r: no calls that changed something\n"
    )
    assert cli("clouds", *words).out == (calls if words else objects)


@pytest.mark.usefixtures("nowhere")
def test_without_fake_clouds_the_error_says_how_to_start_them(cli: Cli) -> None:
    result = cli("clouds")
    assert result.code == ExitCode.NOT_FOUND
    assert "`modelplane up --cloud fake` starts them" in result.err
