"""A leader that starts late, in a group of the real LeaderWorkerSet controller.

The testbed runs no containers, so the test runs the init containers of the followers,
with the variables that the controller put into them. Nothing else resolves the names of
the cluster, so a file stands for its DNS server.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from kubernetes import client

from activities.render.engines.rendezvous import CONTAINER
from activities.render.objects.manifest import Json
from testbed.running import ClusterRunning, Running
from testbed.waiting import wait_until
from tests.activities.render.builders import a_gang, render
from tests.environment.waiting import TIMEOUT_SECONDS

GPU = [{"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 1}]
NAME_LABEL = "leaderworkerset.sigs.k8s.io/name"
LEADER_LABEL = "leaderworkerset.sigs.k8s.io/worker-index"
# The first argument is a file with the address of the leader, the second the program.
WITH_NAMES = """
import pathlib, socket, sys

names, program = pathlib.Path(sys.argv[1]), sys.argv[2]
resolve = socket.getaddrinfo

def from_file(host, *rest, **named):
    if not names.exists():
        raise socket.gaierror(f"{host}: Name or service not known")
    return resolve(names.read_text(), *rest, **named)

socket.getaddrinfo = from_file
sys.argv = ["-c", *sys.argv[3:]]
exec(program)
"""

pytestmark = [pytest.mark.testbed, pytest.mark.long]


class Group:
    """The pods of the only group in a namespace of its own."""

    def __init__(self, api: client.ApiClient) -> None:
        self.core = client.CoreV1Api(api)
        made = self.core.create_namespace(
            {"metadata": {"generateName": "slow-leader-"}}
        )
        self.namespace: str = made.metadata.name
        self.custom = client.CustomObjectsApi(api)

    def pods(self) -> list[Json]:
        found = self.core.list_namespaced_pod(self.namespace, label_selector=NAME_LABEL)
        api = self.core.api_client
        return [api.sanitize_for_serialization(pod) for pod in found.items]

    def followers(self) -> list[Json]:
        return [
            pod for pod in self.pods() if pod["metadata"]["labels"][LEADER_LABEL] != "0"
        ]

    def uids(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.pods()}


@pytest.fixture
def group(
    testbed: Running, kube: Callable[[ClusterRunning], client.ApiClient]
) -> Iterator[Group]:
    """Yield a group of one leader and two followers, which are created."""
    found = Group(kube(next(iter(testbed.clusters.values()))))
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    member = {"pool": "h100", "requests": GPU}
    flag = f"--dist-init-addr=$(MODELPLANE_LEADER_ADDRESS):{port}"
    rendered = render(
        a_gang(leader=member, worker={**member, "nodes": 2, "args": [flag]}),
        namespace=found.namespace,
        name="late",
    )
    for item in rendered.objects:
        group_name, _, version = item.manifest["apiVersion"].partition("/")
        if item.key.startswith(("model-serving-", "resource-claim-")):
            plural = f"{item.manifest['kind'].lower()}s"
            found.custom.create_namespaced_custom_object(
                group_name, version, found.namespace, plural, item.manifest
            )
    wait_until(
        lambda: len(found.pods()) == 3,
        TIMEOUT_SECONDS,
        lambda: f"the group has {len(found.pods())} pods",
    )
    yield found
    found.core.delete_namespace(found.namespace)


@contextmanager
def started(pod: Json, names: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the init container of a follower."""
    (container,) = pod["spec"]["initContainers"]
    assert container["name"] == CONTAINER
    python, option, program, *arguments = container["command"]
    assert (python, option) == ("python3", "-c")
    variables = {each["name"]: each["value"] for each in container["env"]}
    command = [sys.executable, "-c", WITH_NAMES, str(names), program, *arguments]
    with subprocess.Popen(
        command, env=os.environ | variables, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str], wanted: str) -> None:
    assert process.stdout is not None
    assert wanted in next(line for line in process.stdout if wanted in line)


def test_followers_wait_until_a_slow_leader_has_a_name_and_listens(
    group: Group, tmp_path: Path
) -> None:
    names, before = tmp_path / "names", group.uids()
    one, two = group.followers()
    port = int(one["spec"]["initContainers"][0]["command"][-1])
    with started(one, names) as first, started(two, names) as second:
        for process in (first, second):
            first_line(process, "Name or service not known")
        names.write_text("127.0.0.1")
        for process in (first, second):
            first_line(process, "Connection refused")
            assert process.poll() is None
        with socket.create_server(("127.0.0.1", port)):
            assert [process.wait(TIMEOUT_SECONDS) for process in (first, second)] == [
                0,
                0,
            ]
    assert group.uids() == before


def test_a_follower_that_does_not_wait_costs_the_whole_group(group: Group) -> None:
    wait_until(
        lambda: all("containerStatuses" in each["status"] for each in group.pods()),
        TIMEOUT_SECONDS,
        lambda: "the pods do not run",
    )
    before, exited = group.uids(), group.followers()[0]
    statuses = exited["status"]["containerStatuses"]
    restarted = [{**status, "restartCount": 1} for status in statuses]
    group.core.patch_namespaced_pod_status(
        exited["metadata"]["name"],
        group.namespace,
        {"status": {"containerStatuses": restarted}},
    )
    wait_until(
        lambda: not group.uids() & before,
        TIMEOUT_SECONDS,
        lambda: "the group is not recreated",
    )
