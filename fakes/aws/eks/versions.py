"""The versions that EKS offers: of Kubernetes, and of add-ons for each of them."""

from collections.abc import Mapping
from typing import Any

from fakes.aws.cloud import AwsCloud
from fakes.aws.eks.parts import Handler
from fakes.aws.eks_store import BORN
from fakes.aws.wire import AwsRequest

KUBERNETES = ("1.33", "1.34", "1.35", "1.36")
"""All versions of Kubernetes, the oldest first. The last is the default."""
ADD_ONS = (
    "vpc-cni",
    "kube-proxy",
    "coredns",
    "eks-pod-identity-agent",
    "aws-efs-csi-driver",
    "aws-ebs-csi-driver",
)
NEED_NODES = frozenset({"coredns", "aws-efs-csi-driver", "aws-ebs-csi-driver"})
"""The add-ons whose pods run on nodes. They are DEGRADED without nodes."""


def default_add_on(kubernetes: str) -> str:
    """Return the default version of an add-on on a version of Kubernetes."""
    return f"v{kubernetes}.1-eksbuild.1"


def add_on_versions(kubernetes: str) -> tuple[str, ...]:
    """Return the versions of an add-on for a version of Kubernetes, the newest first."""
    return f"v{kubernetes}.2-eksbuild.1", default_add_on(kubernetes)


def _cluster_versions(_cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    wanted = request.parameters.get("clusterVersions") or KUBERNETES
    return {
        "clusterVersions": [
            {
                "clusterVersion": version,
                "clusterType": "eks",
                "defaultPlatformVersion": "eks.1",
                "defaultVersion": version == KUBERNETES[-1],
                "releaseDate": BORN,
                "endOfStandardSupportDate": BORN + 400 * 86_400,
                "status": "standard-support",
                "versionStatus": "STANDARD_SUPPORT",
                "kubernetesPatchVersion": f"{version}.1",
            }
            for version in reversed(KUBERNETES)
            if version in wanted
        ]
    }


def _supported_add_ons(_cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    name, kubernetes = request.text("addonName"), request.text("kubernetesVersion")
    return {
        "addons": [
            {
                "addonName": each,
                "type": "networking" if each == "vpc-cni" else "other",
                "publisher": "eks",
                "owner": "aws",
                "addonVersions": [
                    {
                        "addonVersion": version,
                        "architecture": ["amd64", "arm64"],
                        "compatibilities": [
                            {
                                "clusterVersion": offered,
                                "platformVersions": ["*"],
                                "defaultVersion": version == default_add_on(offered),
                            }
                        ],
                        "requiresConfiguration": False,
                    }
                    for offered in reversed(KUBERNETES)
                    if kubernetes in ("", offered)
                    for version in add_on_versions(offered)
                ],
            }
            for each in ADD_ONS
            if name in ("", each)
        ]
    }


HANDLERS: Mapping[str, Handler] = {
    "DescribeClusterVersions": _cluster_versions,
    "DescribeAddonVersions": _supported_add_ons,
}
