"""A teardown that is stuck, as a user sees it and ends it, on a real fleet."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes.client import ApiClient

from client.errors import ExitCode
from testbed.running import ClusterRunning, Running
from tests.client.commands.live import eventually, manifest
from tests.client.conftest import Cli

pytestmark = pytest.mark.testbed

HOLD = "example.com/hold"


def test_ruling_74_a_stuck_teardown_is_described_and_given_up_with_a_list_of_what_stays(
    cli: Cli,
    tenant: str,
    written: Callable[[str], str],
    here: Running,
    kube: Callable[[ClusterRunning], ApiClient],
) -> None:
    assert cli("apply", "-f", written(manifest(tenant, replicas=1)), "--wait", "--timeout", "90").code == 0
    titles, row = cli("get", "mr", "-n", tenant).out.splitlines()
    replica, cluster = row.split()[0], row.split()[titles.split().index("CLUSTER")]
    hold = workload(kube(here.clusters[cluster]), here.clusters[cluster].server, tenant)
    hold([HOLD])
    try:
        cli("delete", "md/demo", "-n", tenant)
        described = eventually(lambda: cli("describe", "mr", replica, "-n", tenant), lambda seen: HOLD in step(seen.out, 7)).out
        assert "Teardown:" in described
        assert re.search(rf"delete the engines +waiting .*\(finalizer {HOLD}", step(described, 7))
        late = cli("delete", "md/demo", "-n", tenant, "--wait", "--timeout", "1")
        assert late.code == ExitCode.TIMED_OUT
        assert HOLD in late.err
        forced = cli("delete", "md/demo", "-n", tenant, "--force", "--reason", "its owner is gone", "--timeout", "90")
        assert forced.code == ExitCode.DONE, forced.err
        assert "modeldeployment/demo left 1 object behind:" in forced.out
        assert forced.out.splitlines()[-1].split()[:3] == [cluster, "Deployment", tenant]
    finally:
        hold([])


def step(described: str, number: int) -> str:
    """The line of a teardown's step; empty while there is none."""
    return next((line for line in described.splitlines() if line.split()[:1] == [str(number)]), "")


def workload(api: ApiClient, server: str, namespace: str) -> Callable[[list[str]], None]:
    """Find the only engine of a namespace; gives what sets its finalizers."""
    base = f"{server}/apis/apps/v1/namespaces/{namespace}/deployments"
    found: Any = api.call_api("GET", base, header_params={"Accept": "application/json"})
    (item,) = json.loads(found.read())["items"]

    def set_finalizers(finalizers: list[str]) -> None:
        body = {"metadata": {"finalizers": finalizers or None}}
        headers = {"Content-Type": "application/merge-patch+json"}
        api.call_api("PATCH", f"{base}/{item['metadata']['name']}", header_params=headers, body=body).read()

    return set_finalizers
