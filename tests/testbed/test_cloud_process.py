"""The spare clusters and charts of the process with the fake clouds."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import httpx
import pytest
from botocore.exceptions import ClientError

from activities.probes import free_port
from fakes.aws.fake import FakeAws
from fakes.gcp.fake import FakeGoogle
from testbed import cloud_process
from testbed.__main__ import FAILED, main
from testbed.cloud_addresses import EKS, GKE
from testbed.cloud_process import FakeClouds, Spare, Spares, chart_answer
from testbed.cluster.pki import Authority
from testbed.documents import load_all
from testbed.fleet.fleet_file import FleetFile, FleetFileError
from testbed.manifests import write_manifests
from testbed.testbed import Testbed

pytestmark = pytest.mark.slow


class Deleting:
    """An API server that only deletes."""

    deleted: ClassVar[list[tuple[str, str]]] = []

    def __init__(self, server: str, authority: Authority) -> None:
        self._server = server
        del authority

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def delete(self, path: str) -> None:
        self.deleted.append((self._server, path.rpartition("/")[2]))


@pytest.fixture
def spares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spares:
    monkeypatch.setattr(cloud_process, "Kube", Deleting)
    monkeypatch.setattr(Deleting, "deleted", [])
    authority = Authority(tmp_path)
    authority.ca.write_text("CA")
    return Spares(
        [Spare(GKE, "https://gke", authority), Spare(EKS, "https://eks", authority)]
    )


def test_a_cluster_of_the_fleet_is_that_of_one_cluster_until_that_is_gone(
    spares: Spares,
) -> None:
    there = {"one", "two"}
    first = spares.take(GKE, "one", there.__contains__)
    assert first == ("https://gke", "Q0E=")
    assert spares.take(GKE, "two", there.__contains__) is None
    assert spares.take(GKE, "one", there.__contains__) == first
    assert spares.take(EKS, "two", there.__contains__) == ("https://eks", "Q0E=")
    there.remove("one")
    assert spares.take(GKE, "two", there.__contains__) == first


def test_leftovers_of_a_cluster_are_deleted_before_the_next_cluster_starts(
    spares: Spares,
) -> None:
    spares.take(GKE, "one", lambda _: True)
    assert Deleting.deleted == [
        ("https://gke", "modelplane-rwx"),
        ("https://gke", "modelplane-rwx-efs"),
    ]


def test_a_chart_exists_in_the_requested_version_and_installs_nothing() -> None:
    index = chart_answer("/charts/cluster-autoscaler/9.57.0/index.yaml")
    assert index
    (entry,) = json.loads(index)["entries"]["cluster-autoscaler"]
    archive = chart_answer(f"/charts/cluster-autoscaler/9.57.0/{entry['urls'][0]}")
    assert archive
    assert (entry["version"], entry["digest"]) == (
        "9.57.0",
        hashlib.sha256(archive).hexdigest(),
    )
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(archive))) as files:
        assert files.getnames() == ["cluster-autoscaler/Chart.yaml"]
    assert chart_answer("/charts/cluster-autoscaler/9.57.0/other.tgz") is None


def test_a_fake_that_is_started_again_takes_the_credential_of_the_earlier_one() -> None:
    with FakeGoogle() as first:
        before = json.loads(first.credential)
    with FakeGoogle(credential=first.credential) as again:
        after = json.loads(again.credential)
        assert after == before | {"token_uri": again.token_url}
        from fakes.gcp.clients import credentials, token_of  # noqa: PLC0415

        assert again.account_of(token_of(credentials(again.credential))) == again.email


def test_the_credentials_have_only_the_rights_of_the_documents_for_users() -> None:
    limited: dict[str, tuple[str, ...]] = {}
    google: Any = SimpleNamespace(
        email="planes", limit=lambda email, *rights: limited.update({email: rights})
    )
    with FakeAws(role="provisioner") as aws:
        cloud_process.limit_credentials(google, aws)
        assert aws.client("ec2").describe_vpcs()["Vpcs"]
        with pytest.raises(ClientError, match="AccessDenied"):
            aws.client("iam").create_user(UserName="eve")
    assert {"container.clusters.create", "compute.networks.delete"} < {
        *limited["planes"]
    }
    assert "compute.instances.create" not in limited["planes"]


OF_A_PAGE = [{"Origin": "https://example.com"}, {"Host": "rebound.example.com"}]


@pytest.mark.parametrize("headers", OF_A_PAGE, ids=["origin", "host"])
def test_a_page_in_a_browser_is_answered_by_no_fake(headers: dict[str, str]) -> None:
    clouds: Any = SimpleNamespace(
        remains=lambda: {"secret": "names"}, calls=dict, troubles=dict
    )
    port = free_port()
    with cloud_process.controlled(clouds, port):
        assert (
            httpx.get(
                f"http://127.0.0.1:{port}/remains", headers=headers, timeout=60
            ).status_code
            == 404
        )
        assert httpx.get(f"http://127.0.0.1:{port}/remains", timeout=60).json() == {
            "secret": "names"
        }
    with FakeGoogle() as google:
        review = {"spec": {"token": "x"}}
        assert (
            httpx.post(
                google.review_url, headers=headers, json=review, timeout=60
            ).status_code
            == 403
        )
        assert httpx.post(google.review_url, json=review, timeout=60).status_code == 200
    with FakeAws() as aws:
        assert (
            httpx.post(
                f"{aws.url}/_fake/about", headers=headers, content=b"{}", timeout=60
            ).status_code
            == 403
        )
        assert (
            httpx.post(f"{aws.url}/_fake/about", content=b"{}", timeout=60).json()[
                "region"
            ]
            == "us-east-2"
        )


def test_an_image_of_a_page_runs_no_command_of_the_fake_of_aws() -> None:
    with FakeAws() as aws:
        before = aws.ledger()
        aws.client("eks").list_clusters()
        # A browser sends no Origin for an image.
        assert httpx.get(f"{aws.url}/_fake/reset", timeout=60).status_code == 403
        assert len(aws.ledger()) == len(before) + 1


def test_the_command_begins_and_ends_troubles_of_both_fakes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    running = SimpleNamespace(clouds=SimpleNamespace(control_url=url))
    monkeypatch.setattr(Testbed, "running", lambda _: running)

    def said(*words: str) -> tuple[int, list[str]]:
        ended = main(["trouble", *words])
        return ended, capsys.readouterr().out.splitlines()

    def lists(aws: FakeAws) -> str:
        try:
            aws.client("eks").list_clusters()
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        return "done"

    with (
        FakeGoogle() as google,
        FakeAws() as aws,
        cloud_process.controlled(FakeClouds(google, aws), port),
    ):
        _, lines = said()
        assert ("GKE  a zone out" in lines, "EKS  one zone out" in lines) == (True,) * 2
        assert said("begin", EKS, "outage") == (0, ["EKS  outage  lasts"])
        assert said("begin", EKS, "outage") == (0, ["EKS  outage  lasts"])
        assert said("begin", GKE, "no", "machines") == (0, ["GKE  no machines  lasts"])
        assert lists(aws) == "ServiceUnavailableException"
        assert "EKS  outage  lasts" in said("list", EKS)[1]
        assert said("end", EKS, "outage") == (0, ["EKS  outage"])
        assert lists(aws) == "done"
        assert said("begin", EKS, "rain")[0] == FAILED
        wanted = {"cloud": EKS, "name": "outage", "lasts": True}
        for headers in OF_A_PAGE:
            httpx.post(f"{url}/troubles", json=wanted, headers=headers, timeout=60)
        assert lists(aws) == "done", "a page of a browser begins no trouble"


def test_of_the_own_paths_of_aws_the_local_fleet_has_that_for_tokens_alone() -> None:
    with FakeAws(only_reviews=True) as aws:
        for command in ("about", "reset", "remains", "plant-endpoint"):
            assert (
                httpx.post(
                    f"{aws.url}/_fake/{command}", content=b"{}", timeout=60
                ).status_code
                == 500
            )
        assert (
            httpx.post(
                aws.review_url, json={"spec": {"token": "x"}}, timeout=60
            ).status_code
            == 200
        )


def test_fleet_manifests_contain_the_credentials_but_no_handed_out_files(
    tmp_path: Path,
) -> None:
    fleet = FleetFile.load().with_clouds()
    paths = {
        name: tmp_path / name
        for name in (
            "control",
            "prod-eu",
            "prod-us",
            "fake-gke",
            "fake-eks",
            "gke-default",
            "eks-default",
        )
    }
    for name, path in paths.items():
        path.write_text(name)
    credentials = {name: paths.pop(name) for name in ("gke-default", "eks-default")}
    write_manifests(tmp_path / "manifests", fleet, paths, credentials)

    def names(file: str) -> list[str]:
        return [
            each["metadata"]["name"]
            for each in load_all((tmp_path / "manifests" / file).read_text())
        ]

    assert names("clusters.yaml") == ["prod-eu", "prod-us"]
    assert names("classes.yaml") == ["h100-8x", "h200-8x", "l40s-8x"]
    assert names("secrets.yaml") == [
        "control-kubeconfig",
        "prod-eu-kubeconfig",
        "prod-us-kubeconfig",
        "gke-default",
        "eks-default",
    ]


def test_a_fleet_with_a_cluster_of_their_name_gets_no_fake_clouds() -> None:
    fleet = FleetFile.load()
    taken = fleet.clusters[0].model_copy(update={"name": "fake-gke"})
    with pytest.raises(
        FleetFileError,
        match="the fake clouds already use the name fake-gke; rename yours",
    ):
        fleet.model_copy(update={"clusters": [taken]}).with_clouds()
