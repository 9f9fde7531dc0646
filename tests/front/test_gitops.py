"""The requests of GitOps controllers, sent with kubectl: docs/how-to/gitops.md.

Argo CD and Flux apply with the server-side apply of Kubernetes' own library, which
kubectl uses as well. These controllers do not run here.
"""

import json
from typing import Any

import pytest

from tests.front.front_under_test import NOWHERE, FrontUnderTest
from tests.workflows.environment.harness import a_deployment, eventually

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.timeout(900)]

NAMESPACE = "team-a"
MANAGERS = ("argocd-controller", "kustomize-controller")
TRACKED = {"argocd.argoproj.io/tracking-id": "models:modelplane.ai/ModelDeployment"}


def manifest(name: str, *, counted: bool = True, **labels: str) -> str:
    tree = a_deployment(name, NAMESPACE, clusterSelector=NOWHERE)
    metadata = {**tree["metadata"], "labels": labels, "annotations": TRACKED}
    if not counted:
        del tree["spec"]["replicas"]
    return json.dumps({**tree, "metadata": metadata})


class Controller:
    """One controller, with the words of its requests."""

    def __init__(self, front: FrontUnderTest, manager: str) -> None:
        self._front, self._manager = front, manager

    async def apply(self, text: str, *more: str) -> str:
        words = ("apply", "--server-side", "--force-conflicts", "-f", "-")
        manager = f"--field-manager={self._manager}"
        return await self._front.kubectl(*words, manager, *more, input=text)

    async def until_no_drift(self, text: str) -> None:
        """Wait until a dry run shows no difference; at first the status changes."""

        async def drift() -> str:
            try:
                return await self._diff(text, fails=False)
            except AssertionError as error:
                return str(error)

        await eventually(drift, lambda found: found == "", what="no drift")

    async def drift(self, text: str) -> str:
        """Return the difference that a dry run shows."""
        return await self._diff(text, fails=True)

    async def _diff(self, text: str, *, fails: bool) -> str:
        words = ("diff", "--server-side", "--force-conflicts", "-f", "-")
        manager = f"--field-manager={self._manager}"
        return await self._front.kubectl(*words, manager, input=text, fails=fails)

    async def seen(self, name: str) -> Any:
        words = ("-n", NAMESPACE, "get", "md", name, "-o", "json")
        return json.loads(await self._front.kubectl(*words))


@pytest.mark.parametrize("manager", MANAGERS)
async def test_a_controller_applies_sees_drift_repairs_it_and_prunes(
    front: FrontUnderTest, manager: str
) -> None:
    name = f"git-{manager}"
    git = manifest(name, part="models")
    controller = Controller(front, manager)
    await controller.apply(git)
    before = (await controller.seen(name))["metadata"]
    assert before["annotations"] == TRACKED
    # Without a change in git a controller sees no drift, and its apply writes nothing.
    await controller.until_no_drift(git)
    await controller.apply(git)
    after = (await controller.seen(name))["metadata"]
    assert after["generation"] == before["generation"]

    await front.kubectl("-n", NAMESPACE, "label", f"md/{name}", "part=x", "--overwrite")
    drift = await controller.drift(git)
    assert ("-    part: x" in drift, "+    part: models" in drift) == (True, True)
    await controller.apply(git)
    assert (await controller.seen(name))["metadata"]["labels"] == {"part": "models"}

    # Controllers wait for the generation that they applied, and for Ready.
    status = (await controller.seen(name))["status"]
    assert status["observedGeneration"] == after["generation"]
    ready = [each for each in status["conditions"] if each["type"] == "Ready"]
    assert [each["status"] for each in ready] == ["False"]
    selected = ("-l", "part=models", "--cascade=foreground", "--timeout=240s")
    deleted = await front.kubectl("-n", NAMESPACE, "delete", "md", *selected)
    assert f'"{name}" deleted' in deleted


async def test_a_count_that_git_omits_later_belongs_to_the_autoscaler(
    front: FrontUnderTest,
) -> None:
    git = manifest("git-scaled", counted=False)
    controller = Controller(front, MANAGERS[0])
    # A new deployment needs a count.
    await controller.apply(manifest("git-scaled"))
    scale = ("-n", NAMESPACE, "scale", "md/git-scaled", "--replicas=3")
    await front.kubectl(*scale)
    await controller.until_no_drift(git)
    await controller.apply(git)
    assert (await controller.seen("git-scaled"))["spec"]["replicas"] == 3
    # A count in git would be drift for ever, and each apply would take it back.
    assert "+  replicas: 1" in await controller.drift(manifest("git-scaled"))
    await front.kubectl("-n", NAMESPACE, "delete", "md/git-scaled", "--timeout=240s")


async def test_the_front_has_no_namespaces_to_create(front: FrontUnderTest) -> None:
    told = await front.kubectl("create", "namespace", NAMESPACE, fails=True)
    assert "NotFound" in told or "could not find" in told
