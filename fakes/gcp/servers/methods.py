"""Every gRPC method of the fake: its function, its request type, and its object."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.cloud import (
    container_v1,
    filestore_v1,
    iam_admin_v1,
    resourcemanager_v3,
    service_usage_v1,
)
from google.iam.v1 import iam_policy_pb2
from google.longrunning import operations_pb2

from fakes.gcp.services import accounts, filestore, project, service_usage
from fakes.gcp.services.gke import clusters, node_pools, operations
from fakes.gcp.services.world import World

Function = Callable[[World, Any], Any]


@dataclass(frozen=True)
class Service:
    """One gRPC service.

    It has its full name, its API's host, its name in the ledger, and its methods with
    their request types.
    """

    full_name: str
    host: str
    short_name: str
    methods: tuple[tuple[Function, Any], ...]


SERVICES = (
    Service(
        "google.container.v1.ClusterManager",
        "container.googleapis.com",
        "container",
        (
            (clusters.create_cluster, container_v1.CreateClusterRequest),
            (clusters.get_cluster, container_v1.GetClusterRequest),
            (clusters.list_clusters, container_v1.ListClustersRequest),
            (clusters.delete_cluster, container_v1.DeleteClusterRequest),
            (clusters.update_cluster, container_v1.UpdateClusterRequest),
            (clusters.set_labels, container_v1.SetLabelsRequest),
            (
                clusters.set_maintenance_policy,
                container_v1.SetMaintenancePolicyRequest,
            ),
            (clusters.get_server_config, container_v1.GetServerConfigRequest),
            (node_pools.create_node_pool, container_v1.CreateNodePoolRequest),
            (node_pools.get_node_pool, container_v1.GetNodePoolRequest),
            (node_pools.list_node_pools, container_v1.ListNodePoolsRequest),
            (node_pools.delete_node_pool, container_v1.DeleteNodePoolRequest),
            (node_pools.set_node_pool_size, container_v1.SetNodePoolSizeRequest),
            (
                node_pools.set_node_pool_autoscaling,
                container_v1.SetNodePoolAutoscalingRequest,
            ),
            (
                node_pools.set_node_pool_management,
                container_v1.SetNodePoolManagementRequest,
            ),
            (node_pools.update_node_pool, container_v1.UpdateNodePoolRequest),
            (operations.get_operation, container_v1.GetOperationRequest),
            (operations.list_operations, container_v1.ListOperationsRequest),
            (operations.cancel_operation, container_v1.CancelOperationRequest),
        ),
    ),
    Service(
        "google.api.serviceusage.v1.ServiceUsage",
        "serviceusage.googleapis.com",
        "serviceusage",
        (
            (service_usage.get_service, service_usage_v1.GetServiceRequest),
            (service_usage.list_services, service_usage_v1.ListServicesRequest),
            (service_usage.enable_service, service_usage_v1.EnableServiceRequest),
            (service_usage.disable_service, service_usage_v1.DisableServiceRequest),
        ),
    ),
    Service(
        "google.longrunning.Operations",
        "serviceusage.googleapis.com",
        "longrunning",
        ((service_usage.get_operation, operations_pb2.GetOperationRequest),),
    ),
    Service(
        "google.iam.admin.v1.IAM",
        "iam.googleapis.com",
        "iam",
        (
            (accounts.get_service_account, iam_admin_v1.GetServiceAccountRequest),
            (accounts.list_service_accounts, iam_admin_v1.ListServiceAccountsRequest),
            (accounts.create_service_account, iam_admin_v1.CreateServiceAccountRequest),
            (accounts.patch_service_account, iam_admin_v1.PatchServiceAccountRequest),
            (accounts.delete_service_account, iam_admin_v1.DeleteServiceAccountRequest),
            (
                accounts.create_service_account_key,
                iam_admin_v1.CreateServiceAccountKeyRequest,
            ),
            (
                accounts.list_service_account_keys,
                iam_admin_v1.ListServiceAccountKeysRequest,
            ),
            (
                accounts.get_service_account_key,
                iam_admin_v1.GetServiceAccountKeyRequest,
            ),
            (
                accounts.delete_service_account_key,
                iam_admin_v1.DeleteServiceAccountKeyRequest,
            ),
        ),
    ),
    Service(
        "google.cloud.resourcemanager.v3.Projects",
        "cloudresourcemanager.googleapis.com",
        "resourcemanager.projects",
        (
            (project.get_project, resourcemanager_v3.GetProjectRequest),
            (project.get_iam_policy, iam_policy_pb2.GetIamPolicyRequest),
            (project.set_iam_policy, iam_policy_pb2.SetIamPolicyRequest),
            (project.test_iam_permissions, iam_policy_pb2.TestIamPermissionsRequest),
        ),
    ),
    Service(
        "google.cloud.filestore.v1.CloudFilestoreManager",
        "file.googleapis.com",
        "filestore",
        (
            (filestore.list_instances, filestore_v1.ListInstancesRequest),
            (filestore.get_instance, filestore_v1.GetInstanceRequest),
            (filestore.create_instance, filestore_v1.CreateInstanceRequest),
            (filestore.delete_instance, filestore_v1.DeleteInstanceRequest),
        ),
    ),
)


def wire_name(function: Function) -> str:
    """Return the name of a method in gRPC, such as `CreateCluster`."""
    return "".join(part.capitalize() for part in function.__name__.split("_"))


def target(world: World, method: str, message: Any) -> str:
    """Return the full name of a request's object.

    For a create, it is the new object's name.
    """
    if method == "create_cluster":
        return f"{message.parent}/clusters/{message.cluster.name}"
    if method == "create_node_pool":
        return f"{message.parent}/nodePools/{message.node_pool.name}"
    if method == "create_instance":
        return f"{message.parent}/instances/{message.instance_id}"
    if method == "create_service_account":
        email = f"{message.account_id}@{world.project}.iam.gserviceaccount.com"
        return f"{message.name}/serviceAccounts/{email}"
    if method == "patch_service_account":
        return str(message.service_account.name)
    name = next(
        (
            str(getattr(message, field))
            for field in ("name", "parent", "resource")
            if getattr(message, field, "")
        ),
        "",
    )
    if method == "create_service_account_key":
        name = f"{name}/keys"
    return re.sub(r"^projects/-/", f"{world.root}/", name)
