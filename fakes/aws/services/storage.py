"""EFS: transitional states of file systems and mount targets."""

from collections.abc import Callable, Mapping
from typing import Any

from fakes.aws.cloud import AwsCloud
from fakes.aws.services.network import subnet
from fakes.aws.wire import AwsRequest, AwsResponse, Refusal

AVAILABLE = "available"
CREATING = "creating"
DELETING = "deleting"


def _read_systems(cloud: AwsCloud, _request: AwsRequest) -> None:
    cloud.count_reads(list(cloud.efs.file_systems_by_id))


def _read_targets(cloud: AwsCloud, _request: AwsRequest) -> None:
    cloud.count_reads(list(cloud.efs.mount_targets_by_id))


def _create_target(cloud: AwsCloud, request: AwsRequest) -> None:
    system = cloud.efs.file_systems_by_id.get(request.text("FileSystemId"))
    if system is not None and system.life_cycle_state != AVAILABLE:
        cloud.count_reads([system.file_system_id])
        raise Refusal(
            "IncorrectFileSystemLifeCycleState",
            f"The file system is {system.life_cycle_state}, not {AVAILABLE}.",
        )
    within = subnet(cloud, request.text("SubnetId"))
    if within is not None and within.availability_zone in cloud.unsupported_zones:
        raise Refusal(
            "UnsupportedAvailabilityZone",
            f"EFS is not offered in {within.availability_zone}",
        )


def _created_system(cloud: AwsCloud, _request: AwsRequest, answer: AwsResponse) -> None:
    system = cloud.efs.file_systems_by_id[answer.result["FileSystemId"]]
    system.life_cycle_state = CREATING
    cloud.after_reads(
        system.file_system_id,
        cloud.delays.create,
        lambda: setattr(system, "life_cycle_state", AVAILABLE),
    )


def _created_target(cloud: AwsCloud, _request: AwsRequest, answer: AwsResponse) -> None:
    target = cloud.efs.mount_targets_by_id[answer.result["MountTargetId"]]
    interface = cloud.ec2.enis[target.network_interface_id]
    interface.description = (
        f"EFS mount target for {target.file_system_id} ({target.mount_target_id})"
    )
    interface.status, interface.requester_managed = "in-use", True
    target.life_cycle_state = CREATING
    cloud.after_reads(
        target.mount_target_id,
        cloud.delays.create,
        lambda: setattr(target, "life_cycle_state", AVAILABLE),
    )


def _delete_target(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    target = cloud.efs.mount_targets_by_id.get(request.text("MountTargetId"))
    if target is None:
        raise Refusal(
            "MountTargetNotFound",
            f"Mount target '{request.text('MountTargetId')}' does not exist.",
        )
    if target.life_cycle_state != DELETING:
        target.life_cycle_state = DELETING
        cloud.after_reads(
            target.mount_target_id,
            cloud.delays.delete,
            lambda: cloud.efs.delete_mount_target(target.mount_target_id),
        )
    return {}


def _delete_system(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    system = cloud.efs.file_systems_by_id.get(request.text("FileSystemId"))
    if system is None:
        raise Refusal(
            "FileSystemNotFound",
            f"File system '{request.text('FileSystemId')}' does not exist.",
        )
    if system.number_of_mount_targets:
        raise Refusal(
            "FileSystemInUse", f"File system {system.file_system_id} has mount targets"
        )
    if system.life_cycle_state != DELETING:
        system.life_cycle_state = DELETING
        cloud.after_reads(
            system.file_system_id,
            cloud.delays.delete,
            lambda: cloud.efs.delete_file_system(system.file_system_id),
        )
    return {}


BEFORE: Mapping[str, Callable[[AwsCloud, AwsRequest], None]] = {
    "DescribeFileSystems": _read_systems,
    "DescribeMountTargets": _read_targets,
    "CreateMountTarget": _create_target,
}
AFTER: Mapping[str, Callable[[AwsCloud, AwsRequest, AwsResponse], None]] = {
    "CreateFileSystem": _created_system,
    "CreateMountTarget": _created_target,
}
OWN: Mapping[str, Callable[[AwsCloud, AwsRequest], Mapping[str, Any]]] = {
    "DeleteMountTarget": _delete_target,
    "DeleteFileSystem": _delete_system,
}
