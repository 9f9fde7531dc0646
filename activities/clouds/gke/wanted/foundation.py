"""The prerequisites of a GKE cluster.

These are Filestore's API, a network, and a service account for the nodes, which would
otherwise have the default account of Compute Engine with the rights of an editor. Its
role is the least that nodes need, as Google documents:
https://docs.cloud.google.com/kubernetes-engine/security/configure-node-service-accounts
Modelplane itself uses its own credential (docs/adr/0033).
"""

from activities.clouds.desired.graph import CloudCall, DesiredObject, Parameters, Token
from activities.clouds.desired.owner import gcp_description
from activities.clouds.gke.wanted.inputs import GkeInputs

API = "api/file"
VPC = "net/vpc"
SUBNET = "net/subnet"
ACCOUNT = "iam/sa"
BINDING = "iam/binding"

PODS_RANGE = "pods"
SERVICES_RANGE = "services"

_FILESTORE_API = "file.googleapis.com"
NODE_ROLE = "roles/container.defaultNodeServiceAccount"
"""The role of nodes in the project: logs, metrics and autoscaling.

A role exists in the whole project or not at all, because GKE has no narrower resource.
"""


def foundation(inputs: GkeInputs) -> list[DesiredObject]:
    """Return the objects that exist before the cluster.

    An account that the manifest names belongs to its users, and they give it its role.
    """
    made = [_api(inputs), _vpc(inputs), _subnet(inputs)]
    if inputs.gke.node_service_account is None:
        made += [_account(inputs), _binding(inputs)]
    return made


def _api(inputs: GkeInputs) -> DesiredObject:
    service = f"projects/{inputs.project}/services/{_FILESTORE_API}"
    call = CloudCall("serviceusage", "enable_service", {"name": service})
    return DesiredObject(API, "Service", _FILESTORE_API, (), (call,), "state ENABLED")


def _vpc(inputs: GkeInputs) -> DesiredObject:
    network: Parameters = {
        "name": inputs.owner.base,
        "auto_create_subnetworks": False,
        "description": gcp_description(inputs.owner, VPC),
    }
    call = CloudCall(
        "compute.networks",
        "insert_unary",
        {"project": inputs.project, "network_resource": network, "request_id": Token()},
    )
    return DesiredObject(
        VPC, "Network", inputs.owner.base, (), (call,), "operation DONE"
    )


def _subnet(inputs: GkeInputs) -> DesiredObject:
    settings = inputs.settings
    subnet: Parameters = {
        "name": inputs.subnet,
        "network": f"projects/{inputs.project}/global/networks/{inputs.owner.base}",
        "region": inputs.gke.region,
        "ip_cidr_range": str(settings.node_cidr),
        "secondary_ip_ranges": [
            {"range_name": PODS_RANGE, "ip_cidr_range": str(settings.pod_cidr)},
            {"range_name": SERVICES_RANGE, "ip_cidr_range": str(settings.service_cidr)},
        ],
        "description": gcp_description(inputs.owner, SUBNET),
    }
    parameters: Parameters = {
        "project": inputs.project,
        "region": inputs.gke.region,
        "subnetwork_resource": subnet,
        "request_id": Token(),
    }
    return DesiredObject(
        SUBNET,
        "Subnetwork",
        inputs.subnet,
        (VPC,),
        (CloudCall("compute.subnetworks", "insert_unary", parameters),),
        "READY",
    )


def _account(inputs: GkeInputs) -> DesiredObject:
    account = {
        "display_name": inputs.owner.base,
        "description": gcp_description(inputs.owner, ACCOUNT),
    }
    parameters: Parameters = {
        "name": f"projects/{inputs.project}",
        "account_id": inputs.owner.account,
        "service_account": account,
    }
    call = CloudCall("iam", "create_service_account", parameters)
    return DesiredObject(
        ACCOUNT, "ServiceAccount", inputs.owner.account, (), (call,), "readable"
    )


def _binding(inputs: GkeInputs) -> DesiredObject:
    """Return the role binding of the account.

    The handler adds the binding to the project's policy that it read, and sends that
    policy's etag.
    """
    binding = {
        "role": NODE_ROLE,
        "members": [f"serviceAccount:{inputs.node_account}"],
    }
    call = CloudCall(
        "resourcemanager.projects",
        "set_iam_policy",
        {"resource": f"projects/{inputs.project}", "policy": {"bindings": [binding]}},
    )
    return DesiredObject(
        BINDING, "IAM binding", NODE_ROLE, (ACCOUNT,), (call,), "in the policy"
    )
