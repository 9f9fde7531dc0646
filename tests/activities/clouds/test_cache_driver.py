"""The cache driver in a cluster at EKS gets its role.

Pods that started before its pod identity are restarted.
"""

from dataclasses import replace
from typing import Any, cast

import pytest

from activities.clients.helm.port import HelmPool
from activities.clouds.desired.owner import owner_at
from activities.clouds.in_cluster import InCluster
from activities.clouds.lifecycle.handler import ObjectWork, State
from activities.cluster_objects.cluster_api import (
    ClusterPool,
    ObjectId,
    ObjectList,
    Selection,
)
from api_types.labels import POD_IDENTITY
from api_types.messages.clouds import CloudAccount
from tests.activities.clouds.builders import (
    INSTALLATION,
    TOKEN,
    UID,
    an_eks_pool,
    eks,
    object_of,
)

ACCOUNT = CloudAccount(
    provider="EKS",
    cluster="prod",
    cluster_uid=UID,
    secret="s",  # noqa: S106
    region="r",
    installation=INSTALLATION,
)
CLASS = object_of(eks(an_eks_pool()), "sc")
KNOWN = {"efs": {"id": "fs-1"}, "pia/efs-csi": {"id": "a-1"}}
DRIVER = "efs-csi-controller"


def a_pod(name: str, *, identity: bool) -> dict[str, Any]:
    other = {"name": "CSI_ENDPOINT", "value": "unix:///csi/csi.sock"}
    variables = [
        other,
        {
            "name": "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "value": "http://169.254.170.23/v1/credentials",
        },
    ]
    containers = [
        {"name": "liveness-probe"},
        {"name": "efs-plugin", "env": variables if identity else [other]},
    ]
    return {"metadata": {"name": name}, "spec": {"containers": containers}}


class Api:
    """An API server with a Deployment with these pods, or without the Deployment if
    there are none.
    """

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.pods = list(pods)
        self.objects: dict[str, dict[str, Any]] = {}
        if pods:
            spec = {
                "selector": {"matchLabels": {"app": DRIVER, "part": "x"}},
                "template": {"metadata": {"labels": {"app": DRIVER}}},
            }
            self.objects[DRIVER] = {"spec": spec}
        self.restarts: list[str] = []
        self.selections: list[Selection] = []

    async def at(self, connection: Any) -> "Api":
        del connection
        return self

    async def get(self, target: ObjectId) -> dict[str, Any] | None:
        return self.objects.get(target.name)

    async def list(self, selection: Selection) -> ObjectList:
        self.selections.append(selection)
        return ObjectList(self.pods, "1")

    async def apply(self, manifest: dict[str, Any]) -> dict[str, Any]:
        name = manifest["metadata"]["name"]
        if manifest["kind"] != "Deployment":
            self.objects[name] = manifest
            return manifest
        assert (name, manifest["metadata"]["namespace"]) == (DRIVER, "kube-system")
        annotations = manifest["spec"]["template"]["metadata"]["annotations"]
        self.objects[DRIVER]["spec"]["template"]["metadata"]["annotations"] = (
            annotations
        )
        self.restarts.append(annotations[POD_IDENTITY])
        return manifest


def of(api: Api) -> InCluster:
    return InCluster(cast("ClusterPool", api), cast("HelmPool", None))


def wanted(**more: dict[str, str]) -> ObjectWork:
    known = {
        **KNOWN,
        **{
            key.replace("_", "/", 1).replace("_", "-"): facts
            for key, facts in more.items()
        },
    }
    return ObjectWork(owner_at(ACCOUNT), CLASS, known, TOKEN)


async def test_pods_of_the_driver_that_are_older_than_their_identity_restart_once() -> (
    None
):
    api = Api(a_pod("a", identity=True), a_pod("b", identity=False))
    work = of(api)
    assert (await work.ensure(ACCOUNT, wanted())).state is State.READY
    assert (await work.ensure(ACCOUNT, wanted())).state is State.READY
    assert api.restarts == ["a-1"]
    assert api.selections == [
        Selection(
            api.selections[0].kind, "kube-system", "app=efs-csi-controller,part=x"
        )
    ]
    await work.ensure(ACCOUNT, wanted(pia_efs_csi={"id": "a-2"}))
    assert api.restarts == ["a-1", "a-2"]


async def test_an_observation_finds_older_pods() -> None:
    api = Api(a_pod("a", identity=True))
    work = of(api)
    await work.ensure(ACCOUNT, wanted())
    assert (await work.look(ACCOUNT, wanted())).state is State.READY
    api.pods.append(a_pod("b", identity=False))
    found = await work.look(ACCOUNT, wanted())
    assert (found.state, found.reason) == (
        State.DIFFERS,
        "started without their identity: b",
    )
    await work.ensure(ACCOUNT, wanted())
    assert (await work.look(ACCOUNT, wanted())).state is State.READY


@pytest.mark.parametrize(
    "api", [Api(a_pod("a", identity=True)), Api()], ids=["all have it", "no driver"]
)
async def test_pods_are_restarted_only_if_needed(api: Api) -> None:
    await of(api).ensure(ACCOUNT, wanted())
    assert api.restarts == []


async def test_without_a_known_identity_only_the_class_is_observed() -> None:
    api = Api(a_pod("a", identity=False))
    api.objects["modelplane-rwx-efs"] = {}
    assert (
        await of(api).look(ACCOUNT, replace(wanted(), known={"efs": {"id": "fs-1"}}))
    ).state is State.READY
    assert api.selections == []


def test_the_class_is_created_once_its_driver_has_an_identity() -> None:
    assert set(CLASS.needs) == {
        "conn",
        "efs",
        "addon/aws-efs-csi-driver",
        "pia/efs-csi",
    }
