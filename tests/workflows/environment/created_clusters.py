"""A control plane with two fake clouds that hand out the clusters of a testbed.

Their API servers accept the tokens of these clouds.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from google.protobuf.json_format import MessageToDict
from temporalio.client import WorkflowExecutionStatus

from activities.secrets.selection import secret_store
from activities.secrets.store import StoredSecret
from api_types import labels
from api_types.clock import utc_now
from api_types.pins.charts import CLUSTER_AUTOSCALER
from api_types.sections.clusters import SecretSettings
from api_types.settings import Settings
from fakes.aws.fake import FakeAws
from fakes.gcp.fake import FakeGoogle
from fakes.gcp.services.world import GcpEndpoint
from testbed.cluster.pki import Authority
from testbed.fleet.fleet_file import FleetFile
from testbed.running import Running
from testbed.testbed import Testbed
from tests.environment.charts import ChartRepository, chart
from tests.environment.envoy_stand_in import EnvoyStandIn
from tests.environment.shared_testbed import started
from tests.environment.stack_charts import stack_charts
from tests.environment.summary import Summary
from tests.secrecy.environment.canaries import Canaries, decoded, texts_of
from tests.workflows.environment import worker_at_fake_clouds as at_fake_clouds
from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    a_worker,
    condition,
    connected,
    eventually,
    message,
)
from tests.workflows.environment.replaying import replay_all
from workflows.inference_cluster.cloud_pools import OBJECTS_READY

GKE, EKS, BARE = "eemshaven", "columbus", "groningen"
"""The clusters, keyed by their cloud.

The last one is at GKE too, and its InferenceCluster installs its serving stack.
"""
REGIONS = {GKE: "europe-west4", EKS: "us-east-2", BARE: "europe-west4"}
API = "modelplane.ai/v1alpha1"
STORAGE_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CLOUD_SECONDS = 240
"""Seconds for all objects of a cloud in sequence, on a loaded machine."""
BALANCER = "/api/v1/namespaces/default/services/web"
_BALANCER_FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
_DEVICE = {
    "name": "gpu",
    "driver": "gpu.nvidia.com",
    "deviceClassName": "gpu.nvidia.com",
}
_G2 = {
    "machineType": "g2-standard-8",
    "diskSizeGb": 200,
    "accelerator": {"type": "nvidia-l4", "count": 1},
}
_G6 = {
    "instanceType": "g6.2xlarge",
    "diskSizeGb": 200,
    "accelerator": {"type": "nvidia-l4", "count": 1},
}
_NODES: dict[str, Json] = {
    GKE: {"provider": "GKE", "gke": _G2},
    EKS: {"provider": "EKS", "eks": _G6},
    BARE: {"provider": "GKE", "gke": _G2},
}
# A part of every kubeconfig, and the prefixes of the tokens of both clouds.
WORDS = (
    "current-context",
    "client-key-data",
    "certificate-authority-data",
    "ya29.",
    "k8s-aws-v1.",
    "BEGIN PRIVATE KEY",
)


def a_class(cluster: str) -> Json:
    """Return the class of a cluster's GPU nodes."""
    spec = {"provisioning": _NODES[cluster], "devices": [_DEVICE]}
    return {
        "apiVersion": API,
        "kind": "InferenceClass",
        "metadata": {"name": f"{cluster}-l4"},
        "spec": spec,
    }


def a_cluster(cluster: str, **annotations: str) -> Json:
    """Return the manifest of a cluster to create."""
    source, region = _NODES[cluster]["provider"], REGIONS[cluster]
    zone = f"{region}a" if source == "EKS" else f"{region}-a"
    external = {} if cluster == BARE else {labels.STACK: "external"}
    pool = {
        "name": "l4",
        "className": f"{cluster}-l4",
        "nodeCount": 1,
        "maxNodeCount": 2,
        "zones": [zone],
    }
    return {
        "apiVersion": API,
        "kind": "InferenceCluster",
        "metadata": {
            "name": cluster,
            "labels": {"tier": cluster},
            "annotations": {labels.ROUTING: "service", **external, **annotations},
        },
        "spec": {
            "cluster": {"source": source, source.lower(): {"region": region}},
            "nodePools": [pool],
        },
    }


@dataclass
class CreatedClusters:
    """The control plane, the clouds, and the secrets that must appear nowhere."""

    plane: ControlPlane
    google: FakeGoogle
    aws: FakeAws
    owner: Testbed
    envoy: EnvoyStandIn
    folder: Path
    canaries: Canaries = field(default_factory=Canaries)

    async def create(self, cluster: str) -> None:
        """Apply a cluster, at a cloud without objects."""
        if cluster == EKS:
            self.aws.reset()
        else:
            self.google.reset()
        # A testbed's control plane outlives its created cluster. A real cloud would
        # have deleted these objects with the cluster.
        for name in ("modelplane-rwx", "modelplane-rwx-efs"):
            self.plane.call(cluster, "DELETE", f"{STORAGE_CLASSES}/{name}")
        await self.plane.apply(a_class(cluster))
        await self.plane.apply(a_cluster(cluster))

    async def ready(self, cluster: str) -> Json:
        """Wait until a cluster and each of its cloud objects is Ready.

        A cluster may be Ready before its file systems and further pools are.
        """
        return await self.plane.until(
            "InferenceCluster",
            cluster,
            lambda seen: (
                condition(seen, "Ready") == "True"
                and not condition(seen, OBJECTS_READY)
            ),
            within=CLOUD_SECONDS,
        )

    def writes_of_deletion(self, cluster: str) -> list[str]:
        """Return the deletions at a cluster's cloud, in the order of the calls."""
        if cluster != EKS:
            return self.google.ledger().deletions()
        verbs = ("Delete", "Release", "Terminate", "Detach", "Disassociate", "Revoke")
        return [
            f"{each.operation} {each.parameters}"
            for each in self.aws.ledger()
            if each.effective and each.operation.startswith(verbs)
        ]

    async def until_called(self, cluster: str, call: str) -> None:
        """Wait until a call took effect at a cluster's cloud."""

        async def look() -> int:
            return (
                len(self.google.ledger().calls(call, effective=True))
                if cluster != EKS
                else self.aws.made(call)
            )

        await eventually(
            look,
            bool,
            within=CLOUD_SECONDS,
            longest_pause=0.1,
            what=f"{call} at the cloud of {cluster}",
        )

    def remains(self, cluster: str) -> list[str]:
        """Return the objects at a cluster's cloud that were not there at first."""
        return self.aws.remains() if cluster == EKS else self.google.remains()

    def add_load_balancer(self, cluster: str) -> None:
        """Create a Service with a load balancer, as a user or a stack does.

        The test plays its controller.
        """
        metadata = {
            "name": "web",
            "namespace": "default",
            "finalizers": [_BALANCER_FINALIZER],
        }
        spec = {
            "type": "LoadBalancer",
            "ports": [{"port": 80}],
            "selector": {"app": "web"},
        }
        body = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": spec,
        }
        self.plane.call(cluster, "POST", "/api/v1/namespaces/default/services", body)

    def remove_load_balancer(self, cluster: str) -> None:
        """Delete the Service as its user, and remove its load balancer as its controller."""
        self.plane.call(cluster, "DELETE", BALANCER)
        self.plane.call(
            cluster,
            "PATCH",
            BALANCER,
            {"metadata": {"finalizers": None}},
            "application/merge-patch+json",
        )

    async def until_deletion_says(self, cluster: str, text: str) -> None:
        """Wait until the deletion's message contains this text."""
        await self.plane.until(
            "InferenceCluster", cluster, lambda seen: text in message(seen, "Deleting")
        )

    async def secrets_seen(self) -> list[str]:
        """Return every place in which a credential, a token or a kubeconfig appears."""
        self.canaries.values |= {
            f"token {number}": each for number, each in enumerate(self.google.tokens())
        }
        found = []
        async for place, text in self._places():
            found += [
                f"{what} in {place}"
                for what in (
                    *self.canaries.seen_in(text),
                    *(word for word in WORDS if word in text),
                )
            ]
        return found

    async def _places(self) -> AsyncIterator[tuple[str, str]]:
        codec = self.plane.client.data_converter.payload_codec
        async for run in self.plane.client.list_workflows():
            handle = self.plane.client.get_workflow_handle(run.id, run_id=run.run_id)
            description = await handle.describe()
            trees = {
                "history": (await handle.fetch_history()).to_json_dict(),
                "description": MessageToDict(description.raw_description),
            }
            for what, tree in trees.items():
                yield f"{what} of {run.id}", json.dumps(tree)
                yield (
                    f"payloads of the {what} of {run.id}",
                    "\n".join(await decoded(tree, codec)),
                )
            if description.status is WorkflowExecutionStatus.RUNNING:
                yield (
                    f"description of {run.id}",
                    json.dumps(await handle.query("describe")) if "/" in run.id else "",
                )
        for file, text in texts_of(self.folder / "logs", without=[]):
            yield file.name, text


def _fleet(google: FakeGoogle, aws: FakeAws) -> str:
    reviews = {GKE: google.review_url, EKS: aws.review_url, BARE: google.review_url}
    pools = [{"name": "l4", "class": "l4", "nodes": 2}]
    clusters = [
        {"name": name, "tokenReview": url, "stack": name != BARE, "pools": pools}
        for name, url in reviews.items()
    ]
    return str(
        yaml.safe_dump(
            {
                "classes": {"l4": {"devices": [_DEVICE]}},
                "clusters": clusters,
                "control": False,
            }
        )
    )


def _authority(home: Path, cluster: str) -> str:
    return base64.b64encode(
        Authority(home / "clusters" / cluster / "pki").ca.read_bytes()
    ).decode()


def _google_endpoint(server: str, authority: str) -> GcpEndpoint:
    return GcpEndpoint(server.removeprefix("https://"), authority)


@asynccontextmanager
async def created_clusters(
    folder: Path, kube: Callable[[Any], Any], summary: Summary
) -> AsyncIterator[CreatedClusters]:
    """Start the control plane and the clouds. At the end, replay every workflow run."""
    with ExitStack() as stack:
        handed_out: dict[str, tuple[str, str]] = {}
        google = stack.enter_context(FakeGoogle())
        aws = stack.enter_context(
            FakeAws(
                REGIONS[EKS],
                role="provisioner",
                on_cluster_ready=lambda _: handed_out[EKS],
            )
        )
        home = folder / "home"
        home.mkdir(parents=True)
        file = home / "fleet.yaml"
        file.write_text(_fleet(google, aws))
        owner = Testbed(home, FleetFile.load(file))
        stack.callback(owner.down)
        running: Running = await asyncio.to_thread(started, owner, summary)
        handed_out |= {
            name: (each.server, _authority(home, name))
            for name, each in running.clusters.items()
        }
        google.connect(
            lambda name: _google_endpoint(
                *handed_out[name.rpartition("/")[2].rpartition("-")[0]]
            )
        )
        autoscaler = chart(CLUSTER_AUTOSCALER.chart, CLUSTER_AUTOSCALER.version)
        charts = stack.enter_context(ChartRepository(*stack_charts(), autoscaler))
        envoy = EnvoyStandIn(
            running.clusters[BARE].server, Authority(home / "clusters" / BARE / "pki")
        )
        stack.enter_context(envoy.running())
        logs, secrets = folder / "logs", folder / "secrets"
        logs.mkdir()
        store = secret_store(Settings(secrets=SecretSettings(directory=secrets)))
        for name, credential in (
            ("gke-default", google.credential),
            ("eks-default", aws.credential.text),
        ):
            await store.put(
                StoredSecret(
                    labels.SYSTEM_NAMESPACE, name, {"credentials": credential.encode()}
                )
            )
        settings = {
            at_fake_clouds.AWS: aws.url,
            at_fake_clouds.GRPC: google.grpc_target,
            at_fake_clouds.COMPUTE: google.compute_url,
            "MODELPLANE_PROVISION__INSTALLATION_ID": "acme",
            "MODELPLANE_STACK__CHART_MIRROR": charts.url,
        }
        began = utc_now()
        with a_worker(
            running.temporal_address,
            secrets,
            logs / "worker.log",
            at_fake_clouds.MODULE,
            **settings,
        ) as worker:
            async with connected(running) as client:
                world = CreatedClusters(
                    ControlPlane(client, running, worker, kube),
                    google,
                    aws,
                    owner,
                    envoy,
                    folder,
                )
                keys = {
                    "private key": json.loads(google.credential)["private_key"],
                    "secret key": aws.credential.secret_key,
                }
                world.canaries.values |= keys | {
                    "session token": aws.credential.session_token or ""
                }
                yield world
                await replay_all(client, began, folder)


async def until_gone(world: CreatedClusters, cluster: str) -> None:
    """Wait until a cluster and its CloudCluster have ended."""
    await world.plane.gone("InferenceCluster", cluster, within=CLOUD_SECONDS)

    async def running() -> list[str]:
        return [
            run.id
            async for run in world.plane.client.list_workflows(
                f'ExecutionStatus = "Running" AND WorkflowId STARTS_WITH "cloud/{cluster}/"'
            )
        ]

    await eventually(
        running, lambda found: found == [], what="the end of the CloudCluster"
    )
