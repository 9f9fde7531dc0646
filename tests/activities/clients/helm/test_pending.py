"""A pending release is awaited while its helm may still run, and recovered afterwards."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from activities.clients.helm.command import environment
from activities.clients.helm.kubeconfig_file import KubeconfigFile
from activities.clients.helm.port import Release
from api_types.errors import ReleasePending, ServerError
from tests.activities.clients.helm.conftest import CONFIG, OnCluster
from tests.activities.environment.cluster_under_test import eventually

pytestmark = pytest.mark.testbed("shared")

# A Job that never starts, so that helm waits for it.
ENDLESS_HOOK = """apiVersion: batch/v1
kind: Job
metadata:
  name: endless-{{ .Release.Revision }}
  annotations: {helm.sh/hook: "pre-install,pre-upgrade"}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers: [{name: hook, image: example.com/hook}]
"""


async def pending(here: OnCluster, wanted: Release) -> ReleasePending:
    with pytest.raises(ReleasePending) as raised:
        await here.helm.ensure(wanted)
    return raised.value


@pytest.mark.parametrize(
    "status", ["pending-install", "pending-upgrade", "pending-rollback", "uninstalling"]
)
async def test_a_release_that_is_pending_for_30_s_is_left_alone(
    here: OnCluster, status: str
) -> None:
    wanted = here.release(text="x")
    await here.helm.ensure(wanted)
    here.rewrite(1, status, seconds_ago=30)
    error = await pending(here, wanted)
    # The other helm may be done long before the release may be recovered.
    assert error.next_retry_delay == timedelta(seconds=10)
    assert f"release {here.namespace}/mp-demo: {status} since " in error.message
    assert error.retryable
    with pytest.raises(ReleasePending):
        await here.helm.uninstall("mp-demo", here.namespace)
    assert here.revisions() == {1: status}
    assert here.values() == {"text": "x"}
    # The next attempt reads it again, because the other helm may be done.
    here.rewrite(1, "deployed", seconds_ago=0)
    assert (await here.helm.ensure(wanted)).revision == 1


@pytest.mark.parametrize("status", ["pending-install", "uninstalling"])
async def test_a_release_left_installing_or_uninstalling_for_400_s_is_reinstalled(
    here: OnCluster, status: str
) -> None:
    wanted = here.release(text="x")
    await here.helm.ensure(wanted)
    uid = here.core.read_namespaced_config_map("mp-demo", here.namespace).metadata.uid
    here.rewrite(1, status, seconds_ago=400)
    state = await here.helm.ensure(wanted)
    assert (state.status, state.revision, here.revisions()) == (
        "deployed",
        1,
        {1: "deployed"},
    )
    assert (
        here.core.read_namespaced_config_map("mp-demo", here.namespace).metadata.uid
        != uid
    )


@pytest.mark.parametrize("status", ["pending-upgrade", "pending-rollback"])
async def test_a_release_left_upgrading_for_400_s_is_rolled_back_and_upgraded(
    here: OnCluster, status: str
) -> None:
    published = here.publish(templates={"config.yaml": CONFIG})
    for number in range(2):
        await here.helm.ensure(here.release(published, number=number))
    uid = here.core.read_namespaced_config_map("mp-demo", here.namespace).metadata.uid
    here.rewrite(1, "deployed", seconds_ago=900)
    here.rewrite(2, status, seconds_ago=400)
    state = await here.helm.ensure(here.release(published, number=2))
    assert (state.status, state.revision) == ("deployed", 4)
    assert here.values() == {"number": 2}
    # Nothing was removed on the way.
    assert (
        here.core.read_namespaced_config_map("mp-demo", here.namespace).metadata.uid
        == uid
    )


async def test_a_rollback_to_the_desired_state_is_the_only_write(
    here: OnCluster,
) -> None:
    published = here.publish(templates={"config.yaml": CONFIG})
    for number in range(2):
        await here.helm.ensure(here.release(published, number=number))
    here.rewrite(1, "deployed", seconds_ago=900)
    here.rewrite(2, "pending-upgrade", seconds_ago=400)
    state = await here.helm.ensure(here.release(published, number=0))
    assert (state.revision, here.values()) == (3, {"number": 0})


async def test_a_rollback_reverts_changes_by_hand(here: OnCluster) -> None:
    published = here.publish(templates={"config.yaml": CONFIG})
    for number in range(2):
        await here.helm.ensure(here.release(published, number=number))
    here.core.patch_namespaced_config_map(
        "mp-demo",
        here.namespace,
        {"data": {"values": "by hand"}},
        field_manager="kubectl-edit",
    )
    here.rewrite(1, "deployed", seconds_ago=900)
    here.rewrite(2, "pending-upgrade", seconds_ago=400)
    await here.helm.ensure(here.release(published, number=0))
    assert here.values() == {"number": 0}


async def test_a_rollback_goes_to_the_newest_revision_that_was_deployed(
    here: OnCluster,
) -> None:
    published = here.publish(templates={"config.yaml": CONFIG})
    for number in range(4):
        await here.helm.ensure(here.release(published, number=number))
    for revision, status in {
        1: "superseded",
        2: "deployed",
        3: "failed",
        4: "pending-upgrade",
    }.items():
        here.rewrite(revision, status, seconds_ago=400)
    state = await here.helm.ensure(here.release(published, number=1))
    assert (state.revision, here.values()) == (5, {"number": 1})


async def test_a_release_whose_only_revision_was_being_upgraded_is_recovered_too(
    here: OnCluster,
) -> None:
    wanted = here.release(text="x")
    await here.helm.ensure(wanted)
    here.rewrite(1, "pending-upgrade", seconds_ago=400)
    assert (await here.helm.ensure(wanted)).status == "deployed"
    assert here.values() == {"text": "x"}


# Helm that is killed, cancelled, or too slow


@asynccontextmanager
async def other_helm(
    here: OnCluster, folder: Path, *command: str
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Run the helm of another worker, and kill it at the end of the block."""
    kubeconfig = KubeconfigFile(folder, here.access, "prod-eu")
    await kubeconfig.refresh()
    run = [
        here.tools.helm.path,
        *command,
        "--namespace",
        here.namespace,
        "--kubeconfig",
        str(kubeconfig.path),
    ]
    with subprocess.Popen(run, env=environment(folder)) as process:  # noqa: ASYNC220 - fast
        yield process
        process.kill()


async def installing(here: OnCluster) -> list[str]:
    """Return the command that upgrades to a chart whose hook does not end."""
    wanted = with_hook(here)
    return [
        "upgrade",
        wanted.name,
        str(await here.tools.charts.archive(here.tools.helm.path, wanted.chart)),
        "--install",
    ]


def with_hook(here: OnCluster) -> Release:
    return here.release(
        here.publish(templates={"config.yaml": CONFIG, "hook.yaml": ENDLESS_HOOK})
    )


async def test_an_installation_that_was_killed_is_recovered(
    here: OnCluster, tmp_path: Path
) -> None:
    async with other_helm(here, tmp_path, *await installing(here)) as process:
        await eventually(lambda: here.revisions() == {1: "pending-install"})
        await pending(here, here.release(text="x"))
        process.send_signal(signal.SIGKILL)
        process.wait()
        await pending(here, here.release(text="x"))
    here.rewrite(1, "pending-install", seconds_ago=400)
    assert (await here.helm.ensure(here.release(text="x"))).status == "deployed"
    assert (here.values(), here.revisions()) == ({"text": "x"}, {1: "deployed"})


async def test_an_upgrade_that_was_killed_is_recovered(
    here: OnCluster, tmp_path: Path
) -> None:
    await here.helm.ensure(here.release(text="x"))
    async with other_helm(here, tmp_path, *await installing(here)):
        await eventually(
            lambda: here.revisions() == {1: "deployed", 2: "pending-upgrade"}
        )
    await pending(here, here.release(text="y"))
    here.rewrite(2, "pending-upgrade", seconds_ago=400)
    assert (await here.helm.ensure(here.release(text="y"))).status == "deployed"
    assert here.values() == {"text": "y"}


async def test_an_uninstallation_that_was_killed_is_finished(
    here: OnCluster, tmp_path: Path
) -> None:
    await here.helm.ensure(here.release(text="x"))
    here.core.patch_namespaced_config_map(
        "mp-demo", here.namespace, {"metadata": {"finalizers": ["example.com/slow"]}}
    )
    async with other_helm(here, tmp_path, "uninstall", "mp-demo", "--wait"):
        await eventually(lambda: here.revisions() == {1: "uninstalling"})
    with pytest.raises(ReleasePending):
        await here.helm.uninstall("mp-demo", here.namespace)
    here.rewrite(1, "uninstalling", seconds_ago=400)
    await here.helm.uninstall("mp-demo", here.namespace)
    assert here.revisions() == {}
    here.core.patch_namespaced_config_map(
        "mp-demo", here.namespace, {"metadata": {"finalizers": None}}
    )
    await eventually(lambda: here.config() is None)


async def test_a_cancelled_installation_is_recorded_as_failed_and_needs_no_recovery(
    here: OnCluster,
) -> None:
    installing = asyncio.create_task(here.helm.ensure(with_hook(here)))
    # Helm writes the release again just before it creates the hook, and this write may
    # overtake the one that records the failure.
    await eventually(lambda: here.jobs() == ["endless-1"])
    installing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await installing
    assert here.revisions() == {1: "failed"}
    assert (await here.helm.ensure(here.release(text="x"))).status == "deployed"


async def test_a_hook_that_does_not_end_is_an_error_that_is_tried_again(
    here: OnCluster,
) -> None:
    async with here.client(operation_seconds=8) as helm:
        with pytest.raises(ServerError) as raised:
            await helm.ensure(with_hook(here))
    assert raised.value.retryable
    # On a busy machine helm is stopped before it has written anything.
    assert here.revisions() in ({1: "failed"}, {})
