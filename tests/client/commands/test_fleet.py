"""The command line on a real fleet: real Temporal, a real worker, real Kubernetes API servers."""

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from api_types.environment import HOME_VARIABLE
from client.errors import ExitCode
from client.follow import requests
from client.local.processes import WORKER
from testbed.running import Running
from testbed.testbed import Testbed
from tests.client.commands.live import ROOT, TOO_BIG, eventually, manifest
from tests.client.conftest import Cli
from tests.environment.waiting import TIMEOUT_SECONDS

pytestmark = pytest.mark.testbed

INTERRUPTED = 130


def an_existing_cluster(name: str) -> dict[str, Any]:
    """A cluster whose kubeconfig is in the Secret `<name>-kubeconfig`."""
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceCluster",
        "metadata": {"name": name, "annotations": {"modelplane.ai/stack": "external"}},
        "spec": {"cluster": {"source": "Existing", "existing": {"secretRef": {"name": f"{name}-kubeconfig"}}}},
    }


def test_a_deployment_is_applied_shown_scaled_and_deleted(cli: Cli, tenant: str, written: Callable[[str], str], here: Running) -> None:
    file = written(manifest(tenant))
    applied = cli("apply", "-f", file, "--wait", "--timeout", str(TIMEOUT_SECONDS))
    assert (applied.code, applied.out) == (0, "modeldeployment/demo created\n")
    assert "✓ modeldeployment/demo: Ready" in applied.err
    assert cli("apply", "-f", file).out == "modeldeployment/demo unchanged\n"

    titles, row = cli("get", "md", "-n", tenant).out.splitlines()
    assert titles.split() == ["NAME", "REPLICAS", "READY", "AGE"]
    assert row.split()[:3] == ["demo", "2", "True"]

    shown = json.loads(cli("get", "md/demo", "-n", tenant, "-o", "json").out)
    assert shown["status"]["replicas"] == {"ready": 2, "total": 2}
    assert {placement["cluster"] for placement in shown["status"]["placements"]} == set(here.clusters)

    replicas = [line.split()[1] for line in cli("get", "mr", "-n", tenant).out.splitlines()[1:]]
    assert sorted(replicas) == sorted(here.clusters)

    described = cli("describe", "md", "demo", "-n", tenant).out
    for part in ("Phase:       Ready", "Conditions:", "Replicas:", "Events:", "Temporal: http://127.0.0.1:", *here.clusters):
        assert part in described

    scaled = cli("scale", "md/demo", "--replicas", "3", "-n", tenant, "--wait", "--timeout", str(TIMEOUT_SECONDS))
    assert (scaled.code, scaled.out) == (0, "modeldeployment/demo scaled to 3\n")
    # The file still says 2; an unchanged manifest does not take back what was scaled since.
    assert cli("apply", "-f", file).out == "modeldeployment/demo unchanged\n"
    assert json.loads(cli("get", "md/demo", "-n", tenant, "-o", "json").out)["spec"]["replicas"] == 3

    reasons = [line.split()[2] for line in cli("events", "-n", tenant, "md/demo").out.splitlines()[1:]]
    assert {"SpecChanged", "Scheduled"} <= set(reasons)

    deleted = cli("delete", "md/demo", "-n", tenant, "--wait", "--timeout", str(TIMEOUT_SECONDS))
    assert (deleted.code, deleted.out) == (0, "modeldeployment/demo deletion requested\n")
    assert "waits until gone" in deleted.err
    assert cli("get", "md/demo", "-n", tenant).code == ExitCode.NOT_FOUND
    assert "No resources found" in cli("get", "mr", "-n", tenant).err


def test_a_wait_that_cannot_end_says_why_and_what_to_do(cli: Cli, tenant: str, written: Callable[[str], str]) -> None:
    result = cli("apply", "-f", written(manifest(tenant, TOO_BIG)), "--wait", "--timeout", "4")
    assert result.code == ExitCode.TIMED_OUT
    assert f"ModelDeployment {tenant}/too-big: ReplicasScheduled: InsufficientCapacity" in result.err
    assert "0/2 clusters are available" in result.err
    assert "next: free or add nodes" in result.err


def test_scaling_to_zero_counts_as_reached(cli: Cli, tenant: str, written: Callable[[str], str]) -> None:
    cli("apply", "-f", written(manifest(tenant, replicas=1)), "--wait", "--timeout", str(TIMEOUT_SECONDS))
    result = cli("scale", "md/demo", "--replicas", "0", "-n", tenant, "--wait", "--timeout", str(TIMEOUT_SECONDS))
    assert result.code == 0, result.err
    assert "✓ modeldeployment/demo: scaled to zero" in result.err


def test_a_manifest_that_is_changed_is_configured_and_its_generation_rises(cli: Cli, tenant: str, written: Callable[[str], str]) -> None:
    cli("apply", "-f", written(manifest(tenant, TOO_BIG)))
    assert cli("apply", "-f", written(manifest(tenant, TOO_BIG, replicas=2))).out == "modeldeployment/too-big configured\n"
    assert json.loads(cli("get", "md/too-big", "-n", tenant, "-o", "json").out)["metadata"]["generation"] == 2


def test_what_does_not_exist_has_its_own_exit_code(cli: Cli, tenant: str) -> None:
    for words in (
        ["get", "md", "missing"],
        ["describe", "md/missing"],
        ["scale", "md/missing", "--replicas", "1"],
        ["delete", "md/missing"],
    ):
        result = cli(*words, "-n", tenant)
        assert result.code == ExitCode.NOT_FOUND, words
        assert f"ModelDeployment {tenant}/missing does not exist" in result.err
    assert cli("delete", "md/missing", "-n", tenant, "--ignore-not-found").code == 0


def test_an_object_that_is_being_deleted_takes_no_requests(cli: Cli, tenant: str, written: Callable[[str], str]) -> None:
    file = written(manifest(tenant))
    cli("apply", "-f", file, "--wait", "--timeout", str(TIMEOUT_SECONDS))
    cli("delete", "md/demo", "-n", tenant)
    for words in (["apply", "-f", file], ["scale", "md/demo", "-n", tenant, "--replicas", "1"]):
        result = cli(*words)
        assert result.code == ExitCode.CONFLICT, words
        assert f"ModelDeployment {tenant}/demo is being deleted" in result.err


def test_lists_can_be_narrowed_by_label_and_joined_over_kinds(cli: Cli, here: Running) -> None:
    names = cli("get", "ic", "-l", "modelplane.ai/region=eu-west", "-o", "name").out.split()
    assert names == ["inferencecluster/prod-eu"]
    everything = cli("get", "ic,icl", "-o", "name").out.split()
    assert set(everything) >= {f"inferencecluster/{name}" for name in here.clusters} | {"inferenceclass/h100-8x"}
    assert "tier=prod" in cli("get", "ic", "--show-labels").out


def test_a_change_that_needs_a_new_object_is_refused_before_it_is_sent(cli: Cli, here: Running, written: Callable[[str], str]) -> None:
    tree = json.loads(cli("get", "ic/prod-eu", "-o", "json").out)
    tree["spec"]["cluster"] = {"source": "GKE", "gke": {"region": "europe-west4"}}
    tree["spec"]["nodePools"] = [{**pool, "zones": ["europe-west4-a"]} for pool in tree["spec"]["nodePools"]]
    result = cli("apply", "-f", written(json.dumps(tree)))
    assert result.code == ExitCode.REFUSED
    assert "spec.cluster.source" in result.err
    assert here.clusters


def test_a_cluster_that_does_not_answer_is_reported_with_its_address(cli: Cli, here: Running, written: Callable[[str], str]) -> None:
    name = f"dead-{uuid.uuid4().hex[:6]}"
    kubeconfig = re.sub(r"server: https://127.0.0.1:\d+", "server: https://127.0.0.1:9", here.clusters["prod-eu"].kubeconfig.read_text())
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"{name}-kubeconfig", "namespace": "modelplane-system"},
        "stringData": {"kubeconfig": kubeconfig},
    }
    cli("apply", "-f", written(json.dumps(secret)))
    assert cli("apply", "-f", written(json.dumps(an_existing_cluster(name)))).code == 0
    eventually(lambda: cli("describe", f"ic/{name}"), lambda seen: "no response from https://127.0.0.1:9" in seen.out)
    result = cli("apply", "-f", written(json.dumps(an_existing_cluster(name))), "--wait", "--timeout", "1")
    assert result.code == ExitCode.TIMED_OUT
    assert "no response from https://127.0.0.1:9" in result.err
    assert "Failing steps, tried again:\n  connect_cluster, attempt" in cli("describe", f"ic/{name}").out
    forced = cli("delete", f"ic/{name}", "--force", "--reason", "the rack is gone", "--wait", "--timeout", str(TIMEOUT_SECONDS))
    assert forced.code == 0, forced.err
    assert cli("delete", "-f", written(json.dumps(secret))).out == f"secret/{name}-kubeconfig deleted\n"


def test_a_cluster_without_its_secret_is_reported_with_its_reason(cli: Cli, here: Running, written: Callable[[str], str]) -> None:
    name = f"lost-{uuid.uuid4().hex[:6]}"
    result = cli("apply", "-f", written(json.dumps(an_existing_cluster(name))), "--wait", "--timeout", "5")
    assert result.code == ExitCode.TIMED_OUT
    assert "CredentialsInvalid" in result.err
    assert "put a working kubeconfig into the Secret that the cluster names" in result.err
    assert cli("delete", f"ic/{name}", "--wait", "--timeout", str(TIMEOUT_SECONDS)).code == 0
    assert here.clusters


def test_a_missing_class_is_reported_with_its_reason(cli: Cli, here: Running, written: Callable[[str], str]) -> None:
    name = f"new-{uuid.uuid4().hex[:6]}"
    tree = json.loads(cli("get", "ic/prod-eu", "-o", "json").out)
    tree["metadata"] = {"name": name, "annotations": tree["metadata"]["annotations"]}
    tree["spec"]["nodePools"] = [{"name": "pool", "className": "no-such-class", "nodeCount": 1}]
    result = cli("apply", "-f", written(json.dumps(tree)), "--wait", "--timeout", "5")
    assert result.code == ExitCode.TIMED_OUT
    assert "WaitingForClasses" in result.err
    assert "no-such-class" in result.err
    assert "apply the missing InferenceClass" in result.err
    assert cli("delete", f"ic/{name}", "--wait", "--timeout", str(TIMEOUT_SECONDS)).code == 0
    assert here.clusters


def test_without_a_worker_objects_are_listed_from_their_search_attributes_and_requests_are_accepted(
    cli: Cli, here: Running, testbed_owner: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    testbed_owner.stop_process(WORKER)
    # No worker is going to answer.
    monkeypatch.setattr(requests, "ANSWER_SECONDS", 1.0)
    try:
        result = eventually(lambda: cli("get", "ic"), lambda seen: "?" in seen.out)
        assert {line.split()[0] for line in result.out.splitlines()[1:]} >= set(here.clusters)
        assert "True?" in result.out
        assert "is a worker running?" in result.err
        assert cli("describe", "ic/prod-eu").code == ExitCode.UNREACHABLE
        assert "start a worker" in cli("get", "ic/prod-eu").err
        # Temporal takes what changes an object, and tells by itself whether there is one.
        retried = cli("retry", "ic/prod-eu")
        assert (retried.code, retried.out) == (0, "inferencecluster/prod-eu accepted by Temporal, not yet seen by a worker\n")
        assert cli("scale", "md/missing", "--replicas", "1").code == ExitCode.NOT_FOUND
    finally:
        assert cli("up", "--no-data-plane").code == 0


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Tests that run in the background have children that ignore SIGINT, unlike those of a person at a terminal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_watch_prints_what_changes_until_it_is_interrupted(tenant: str, written: Callable[[str], str], cli: Cli, here: Running) -> None:
    command = [sys.executable, "-m", "client.main", "get", "md", "-n", tenant, "-w"]
    environment = {**os.environ, HOME_VARIABLE: str(here.home)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
        assert watch.stdout
        assert watch.stderr
        assert "No resources found" in watch.stderr.readline()
        cli("apply", "-f", written(manifest(tenant, TOO_BIG)))
        assert watch.stdout.readline().split() == ["NAME", "REPLICAS", "READY", "AGE"]
        assert watch.stdout.readline().split()[0] == "too-big"
        cli("delete", "md/too-big", "-n", tenant, "--wait", "--timeout", str(TIMEOUT_SECONDS))
        assert any("too-big is gone" in line for line in iter(watch.stderr.readline, ""))
        watch.send_signal(signal.SIGINT)
        assert watch.wait(TIMEOUT_SECONDS) == INTERRUPTED


def test_links_lead_to_the_workflow_of_the_object(cli: Cli, here: Running) -> None:
    link = cli("ui", "ic/prod-eu").out.strip()
    assert link.startswith(f"{here.temporal_ui}/namespaces/default/workflows/inferencecluster%2Fprod-eu/")
    assert cli("ui", "ic/missing").code == ExitCode.NOT_FOUND


def test_logs_of_the_worker_can_be_read(cli: Cli, here: Running) -> None:
    assert "worker" in {line.split()[0] for line in cli("logs").out.splitlines()[1:]}
    assert "serving" in cli("logs", "worker", "--tail", "1000").out
    assert "name one of" in cli("logs", "missing").err
    assert here.clusters


def test_the_example_script_deploys_scales_and_waits(cli: Cli, tenant: str, written: Callable[[str], str], here: Running) -> None:
    program = [sys.executable, str(ROOT / "examples" / "deploy_and_scale.py"), written(manifest(tenant, replicas=1))]
    environment = {**os.environ, "MODELPLANE_TEMPORAL__ADDRESS": here.temporal_address}
    for replicas, known in (("2", 1), ("1", 2)):  # run again, it finds the count of the run before
        ended = subprocess.run([*program, replicas], env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
        lines = ended.stdout.splitlines()
        assert lines[-1].startswith(f"{replicas} of {replicas} Ready"), ended.stderr
        assert any(line.startswith(f"{known} of {known} Ready") for line in lines)
    assert cli("get", "md/demo", "-n", tenant).out.split()[-3:-1] == ["1", "True"]
