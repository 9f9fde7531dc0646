"""The cache storage of an EKS cluster: one EFS file system, an access point per claim."""

from activities.clouds.desired.graph import (
    CloudCall,
    DesiredObject,
    Fact,
    Parameters,
    Token,
)
from activities.clouds.desired.owner import ClusterOwner, aws_tags
from activities.clouds.desired.storage_class import RESTART, storage_class
from activities.clouds.eks.wanted.control_plane import CONNECTION, EFS_DRIVER
from activities.clouds.eks.wanted.identities import EFS_IDENTITY
from activities.clouds.eks.wanted.inputs import EksInputs
from activities.clouds.eks.wanted.network import EFS_GROUP, SUBNETS, private_subnet

FILE_SYSTEM = "efs"
MOUNTS = "efs/mounts"
STORAGE_CLASS = "sc"
CACHE_CLASS = "modelplane-rwx-efs"


def file_system(owner: ClusterOwner) -> DesiredObject:
    parameters: Parameters = {
        "CreationToken": Token(),
        "PerformanceMode": "generalPurpose",
        "ThroughputMode": "elastic",
        "Encrypted": True,
        "Tags": [
            {"Key": tag, "Value": value}
            for tag, value in aws_tags(owner, FILE_SYSTEM, owner.base).items()
        ],
    }
    create = CloudCall("efs", "create_file_system", parameters, {"id": "FileSystemId"})
    return DesiredObject(
        FILE_SYSTEM, "FileSystem", owner.base, (), (create,), "available"
    )


def storage(inputs: EksInputs) -> list[DesiredObject]:
    """Return the file system, and a mount target in each zone that EFS supports."""
    mounts = tuple(
        CloudCall(
            "efs",
            "create_mount_target",
            {
                "FileSystemId": Fact(FILE_SYSTEM),
                "SubnetId": private_subnet(zone),
                "SecurityGroups": [Fact(EFS_GROUP)],
            },
        )
        for zone in inputs.mount_zones
    )
    return [
        file_system(inputs.owner),
        DesiredObject(
            MOUNTS,
            "MountTargets",
            f"{len(mounts)} zones",
            (FILE_SYSTEM, EFS_GROUP, SUBNETS),
            mounts,
            "available",
        ),
    ]


def cache_class() -> DesiredObject:
    """Return the StorageClass of caches.

    EFS does not enforce the sizes of claims, so claims cannot be expanded. The driver
    needs its role, which its pods get when they start. So pods that are older than the
    association are restarted.
    """
    parameters: Parameters = {
        "provisioningMode": "efs-ap",
        "fileSystemId": Fact(FILE_SYSTEM),
        "directoryPerms": "700",
    }
    manifest = storage_class(
        CACHE_CLASS, "efs.csi.aws.com", parameters, expandable=False
    )
    apply = CloudCall("kubernetes", "apply", {"manifest": manifest})
    restart = CloudCall(
        "kubernetes",
        RESTART,
        {
            "namespace": "kube-system",
            "deployment": "efs-csi-controller",
            "identity": Fact(EFS_IDENTITY),
        },
    )
    needs = (CONNECTION, FILE_SYSTEM, EFS_DRIVER, EFS_IDENTITY)
    return DesiredObject(
        STORAGE_CLASS, "StorageClass", CACHE_CLASS, needs, (apply, restart), "stored"
    )
