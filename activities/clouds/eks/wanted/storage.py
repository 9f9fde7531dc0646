"""Where caches of an EKS cluster are stored: one EFS file system, with an access point for each claim."""

from activities.clouds.eks.wanted.control_plane import CONNECTION, EFS_DRIVER
from activities.clouds.eks.wanted.identities import EFS_IDENTITY
from activities.clouds.eks.wanted.inputs import EksInputs
from activities.clouds.eks.wanted.network import EFS_GROUP, SUBNETS, private_subnet
from activities.clouds.graph import Call, DesiredObject, Fact, Parameters, Token
from activities.clouds.owner import Owner, aws_tags
from activities.clouds.storage_class import RESTART, storage_class

FILE_SYSTEM = "efs"
MOUNTS = "efs/mounts"
STORAGE_CLASS = "sc"
CACHE_CLASS = "modelplane-rwx-efs"


def file_system(owner: Owner) -> DesiredObject:
    """Give the file system."""
    parameters: Parameters = {
        "CreationToken": Token(),
        "PerformanceMode": "generalPurpose",
        "ThroughputMode": "elastic",
        "Encrypted": True,
        "Tags": [{"Key": tag, "Value": value} for tag, value in aws_tags(owner, FILE_SYSTEM, owner.base).items()],
    }
    create = Call("efs", "create_file_system", parameters, {"id": "FileSystemId"})
    return DesiredObject(FILE_SYSTEM, "FileSystem", owner.base, (), (create,), "available")


def storage(inputs: EksInputs) -> list[DesiredObject]:
    """Give the file system, and its targets in the private subnets, one per zone."""
    mounts = tuple(
        Call(
            "efs",
            "create_mount_target",
            {"FileSystemId": Fact(FILE_SYSTEM), "SubnetId": private_subnet(pair.zone), "SecurityGroups": [Fact(EFS_GROUP)]},
        )
        for pair in inputs.pairs
    )
    return [
        file_system(inputs.owner),
        DesiredObject(MOUNTS, "MountTargets", f"{len(mounts)} zones", (FILE_SYSTEM, EFS_GROUP, SUBNETS), mounts, "available"),
    ]


def cache_class() -> DesiredObject:
    """Give the StorageClass of caches. The sizes of claims are not enforced, so none is expanded.

    Its driver makes nothing without its role, which pods get when they start: those that are older than the association start anew.
    """
    parameters: Parameters = {"provisioningMode": "efs-ap", "fileSystemId": Fact(FILE_SYSTEM), "directoryPerms": "700"}
    manifest = storage_class(CACHE_CLASS, "efs.csi.aws.com", parameters, expandable=False)
    apply = Call("kubernetes", "apply", {"manifest": manifest})
    restart = Call("kubernetes", RESTART, {"namespace": "kube-system", "deployment": "efs-csi-controller", "identity": Fact(EFS_IDENTITY)})
    needs = (CONNECTION, FILE_SYSTEM, EFS_DRIVER, EFS_IDENTITY)
    return DesiredObject(STORAGE_CLASS, "StorageClass", CACHE_CLASS, needs, (apply, restart), "stored")
