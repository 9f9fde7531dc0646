"""The manifests with which a user adds the testbed's fleet to the product.

Only this module uses the product's API. The files have the form in which a user would
write them.
"""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.cluster.objects import NAMESPACE, STORAGE_CLASS
from testbed.documents import dump_all, write_text
from testbed.fleet.fleet_file import CONTROL, FleetFile, SimulatedCluster

API_VERSION = "modelplane.ai/v1alpha1"
KUBECONFIG_KEY = "kubeconfig"
"""The key in a Secret with a cluster's kubeconfig."""
CREDENTIALS_KEY = "credentials"
"""The key in a Secret with a cloud's credential."""
READABLE = 0o644


def secret_name(cluster: str) -> str:
    """Return the name of the Secret with a cluster's kubeconfig."""
    return f"{cluster}-kubeconfig"


def write_manifests(
    folder: Path,
    fleet: FleetFile,
    kubeconfigs: Mapping[str, Path],
    credentials: Mapping[str, Path],
) -> None:
    """Write classes.yaml, clusters.yaml and, readable only by its owner, secrets.yaml.

    `kubeconfigs` are by cluster. `credentials` of clouds are by the name of their
    Secret. The files do not contain clusters of fake clouds.
    """
    fleet = fleet.known_at_first()
    names = {CONTROL, *(cluster.name for cluster in fleet.clusters)}
    secrets = [
        _secret(secret_name(name), KUBECONFIG_KEY, path)
        for name, path in kubeconfigs.items()
        if name in names
    ]
    secrets += [
        _secret(name, CREDENTIALS_KEY, path) for name, path in credentials.items()
    ]
    write_text(
        folder / "classes.yaml",
        dump_all(_class(name, fleet) for name in sorted(fleet.classes)),
        READABLE,
    )
    write_text(
        folder / "clusters.yaml",
        dump_all(_cluster(cluster) for cluster in fleet.clusters),
        READABLE,
    )
    write_text(folder / "secrets.yaml", dump_all(secrets))


def _class(name: str, fleet: FleetFile) -> dict[str, Any]:
    devices = [
        device.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)
        for device in fleet.classes[name].devices
    ]
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceClass",
        "metadata": {"name": name},
        "spec": {"devices": devices},
    }


def _cluster(cluster: SimulatedCluster) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceCluster",
        "metadata": {
            "name": cluster.name,
            "labels": dict(cluster.labels),
            "annotations": {
                # The testbed installs the serving stack itself.
                **({"modelplane.ai/stack": "external"} if cluster.stack else {}),
                "modelplane.ai/routing": cluster.routing,
            },
        },
        "spec": {
            "cluster": {
                "source": "Existing",
                "existing": {
                    "secretRef": {"name": secret_name(cluster.name)},
                    "cache": {"storageClassName": STORAGE_CLASS},
                },
            },
            "nodePools": [
                {
                    "name": pool.name,
                    "className": pool.node_class,
                    "nodeCount": pool.nodes,
                }
                for pool in cluster.pools
            ],
        },
    }


def _secret(name: str, key: str, content: Path) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "type": "Opaque",
        "data": {key: base64.b64encode(content.read_bytes()).decode()},
    }
