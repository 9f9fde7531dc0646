"""The image in a container engine: its programs run as in deploy/, and serve a fleet.

Only a container shows that the image has every file that the programs need, and that
they run with an unprivileged user, a read-only root file system and no capabilities.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from testbed.fleet.fleet_file import FleetFile
from testbed.running import Running
from testbed.testbed import Testbed
from tests.environment.container_engine import ContainerEngine
from tests.environment.product_image import built_image, say
from tests.environment.waiting import pauses
from tests.workflows.environment.harness import free_port

pytestmark = [
    pytest.mark.image,
    pytest.mark.long,
    pytest.mark.testbed,
    # The first run on a machine builds the image, unless `make image` did.
    pytest.mark.timeout(1800),
]

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
FLEET = """
control: false
classes:
  small:
    devices:
      - name: gpu
        driver: gpu.nvidia.com
        deviceClassName: gpu.nvidia.com
        count: 2
        capacity: {memory: {value: 81559Mi}}
clusters:
  - name: only
    labels: {modelplane.ai/region: here}
    pools: [{name: small, class: small, nodes: 2}]
"""
# The user of the image.
USER = 65532


def pod_of(file: str) -> Json:
    documents = yaml.safe_load_all((ROOT / "deploy" / file).read_text())
    (deployment,) = [each for each in documents if each["kind"] == "Deployment"]
    pod: Json = deployment["spec"]["template"]["spec"]
    return pod


WORKER, FRONT = pod_of("kubernetes/worker.yaml"), pod_of("front/front.yaml")


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    engine = ContainerEngine(say)
    name = built_image(engine)
    with engine.docker_api() as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", address)
        # Ryuk would need an image from a registry. The fixtures here remove their
        # containers themselves.
        patch.setattr(testcontainers_config, "ryuk_disabled", True)
        yield name


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A fleet of one cluster that no other control plane manages."""
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "fleet.yaml").write_text(FLEET)
    testbed = Testbed(folder / "home", FleetFile.load(folder / "fleet.yaml"), say)
    try:
        yield testbed.up()
    finally:
        testbed.down(wipe=True)


@dataclass(frozen=True)
class Place:
    """The environment of containers: the Temporal server, and folders by mount path."""

    temporal_address: str
    mounts: dict[str, Path]


@pytest.fixture(scope="module")
def place(fleet: Running, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The settings of deploy/, the manifests of the fleet, and the user's secret store."""
    folder = tmp_path_factory.mktemp("mounts")
    settings, secrets = folder / "settings", folder / "secrets"
    settings.mkdir()
    secrets.mkdir()
    manifests = shutil.copytree(fleet.manifests, folder / "manifests")
    for path in (secrets, manifests, *manifests.iterdir()):
        os.chown(path, USER, USER)
    config_map = yaml.safe_load(
        (ROOT / "deploy" / "kubernetes" / "settings.yaml").read_text()
    )
    (settings / "config.yaml").write_text(config_map["data"]["config.yaml"])
    mounts = {
        "/etc/modelplane": settings,
        "/manifests": manifests,
        "/examples": ROOT / "examples" / "testbed",
        "/secrets": secrets,
    }
    return Place(fleet.temporal_address, mounts)


@contextmanager
def running(
    image: str, pod: Json, at: Place, **settings: str
) -> Iterator[DockerContainer]:
    """Start the container of a pod of deploy/ with its rights, scratch folder and
    command.
    """
    (spec,) = pod["containers"]
    rights = spec["securityContext"]
    paths = {each["name"]: each["mountPath"] for each in spec["volumeMounts"]}
    scratch = [paths[each["name"]] for each in pod["volumes"] if "emptyDir" in each]
    container = DockerContainer(
        image,
        env={
            "MODELPLANE_CONFIG": "/etc/modelplane/config.yaml",
            "MODELPLANE_TEMPORAL__ADDRESS": at.temporal_address,
            # A control cluster would have to run pods to store its Secrets.
            "MODELPLANE_SECRETS__STORE": "directory",
            "MODELPLANE_SECRETS__DIRECTORY": "/secrets",
            "MODELPLANE_KUBECONFIG__ALLOW_LOOPBACK": "true",
            **settings,
        },
        volumes=[(str(path), target, "rw") for target, path in at.mounts.items()],
        network_mode="host",
        entrypoint=spec.get("command"),
        read_only=rights["readOnlyRootFilesystem"],
        cap_drop=rights["capabilities"]["drop"],
        security_opt=[]
        if rights["allowPrivilegeEscalation"]
        else ["no-new-privileges"],
    )
    for path in scratch:
        container.with_tmpfs_mount(path)
    with container:
        yield container


@pytest.fixture(scope="module")
def worker(image: str, place: Place) -> Iterator[DockerContainer]:
    address = f"127.0.0.1:{free_port()}"
    with running(image, WORKER, place, MODELPLANE_WORKER__LISTEN=address) as container:
        answers(container, f"http://{address}/healthz")
        yield container


@pytest.fixture(scope="module")
def front(image: str, place: Place) -> Iterator[str]:
    """Return the address of the front."""
    address = f"127.0.0.1:{free_port()}"
    with running(image, FRONT, place, MODELPLANE_FRONT__LISTEN=address) as container:
        answers(container, f"http://{address}/readyz")
        yield f"http://{address}"


def answers(container: DockerContainer, url: str) -> None:
    """Wait until a program in a container answers with 200; fail if it exits."""
    for pause in pauses():
        with suppress(httpx.TransportError):
            if httpx.get(url, trust_env=False).status_code == HTTPStatus.OK:
                return
        container.reload()
        if container.status == "exited":
            break
        time.sleep(pause)
    raise AssertionError(f"{url} does not answer: {container.get_logs()}")


def modelplane(container: DockerContainer, *words: str) -> str:
    """Run the command line of the image; return its standard output."""
    ended = container.exec(["modelplane", *words])
    said: str = ended.output.decode()
    assert ended.exit_code == 0, said
    return said


def test_the_worker_of_the_image_serves_a_model_and_its_front_shows_it(
    worker: DockerContainer,
    front: str,
) -> None:
    assert "promoted" in modelplane(worker, "workers", "promote", "--wait")
    applied = modelplane(
        worker, "apply", "-f", "/manifests", "-f", "/examples/demo.yaml", "--wait"
    )
    assert "inferenceclass/small created" in applied
    listed = modelplane(worker, "get", "icl,ic,md", "-o", "name").split()
    assert listed == [
        "inferenceclass/small",
        "inferencecluster/only",
        "modeldeployment/demo",
    ]

    path = "/apis/modelplane.ai/v1alpha1/namespaces/default/modeldeployments/demo"
    seen = httpx.get(f"{front}{path}", trust_env=False).raise_for_status().json()
    ready = {each["type"]: each["status"] for each in seen["status"]["conditions"]}[
        "Ready"
    ]
    assert (seen["status"]["replicas"]["ready"], ready) == (
        seen["spec"]["replicas"],
        "True",
    )


def test_the_container_has_no_rights_that_deploy_does_not_grant(
    worker: DockerContainer,
) -> None:
    status = worker.exec(["cat", "/proc/1/status"]).output.decode().splitlines()
    held = dict(line.split(":", 1) for line in status)
    rights = {
        key: held[key].split()
        for key in ("Uid", "Gid", "CapEff", "CapPrm", "NoNewPrivs")
    }
    none = ["0" * 16]
    ids = [str(USER)] * 4
    assert rights == {
        "Uid": ids,
        "Gid": ids,
        "CapEff": none,
        "CapPrm": none,
        "NoNewPrivs": ["1"],
    }
    refused = worker.exec(["touch", "/opt/modelplane/new"])
    assert (refused.exit_code, b"Read-only file system" in refused.output) == (1, True)


def test_the_worker_ends_cleanly_within_the_grace_period(
    image: str, place: Place
) -> None:
    address = f"127.0.0.1:{free_port()}"
    with running(image, WORKER, place, MODELPLANE_WORKER__LISTEN=address) as container:
        answers(container, f"http://{address}/healthz")
        wrapped = container.get_wrapped_container()
        # SIGTERM, and SIGKILL after the grace period, which gives 137.
        wrapped.stop(timeout=WORKER["terminationGracePeriodSeconds"])
        assert wrapped.wait()["StatusCode"] == 0
