"""What a GKE cluster stands on: the API of Filestore, a network of its own, and an account that administers clusters.

No key of that account is made (docs/adr/0033): people may be allowed to act as it, and this project logs in as its own credential.
"""

from activities.clouds.gke.wanted.inputs import GkeInputs
from activities.clouds.graph import Call, DesiredObject, Parameters, Token
from activities.clouds.owner import gcp_description

API = "api/file"
VPC = "net/vpc"
SUBNET = "net/subnet"
ACCOUNT = "iam/sa"
BINDING = "iam/binding"

PODS_RANGE = "pods"
SERVICES_RANGE = "services"

_FILESTORE_API = "file.googleapis.com"
CLUSTER_ADMIN = "roles/container.admin"


def foundation(inputs: GkeInputs) -> list[DesiredObject]:
    """Give what there is before the cluster."""
    return [_api(inputs), _vpc(inputs), _subnet(inputs), _account(inputs), _binding(inputs)]


def _api(inputs: GkeInputs) -> DesiredObject:
    service = f"projects/{inputs.project}/services/{_FILESTORE_API}"
    call = Call("serviceusage", "enable_service", {"name": service})
    return DesiredObject(API, "Service", _FILESTORE_API, (), (call,), "state ENABLED")


def _vpc(inputs: GkeInputs) -> DesiredObject:
    network: Parameters = {"name": inputs.owner.base, "auto_create_subnetworks": False, "description": gcp_description(inputs.owner, VPC)}
    call = Call("compute.networks", "insert_unary", {"project": inputs.project, "network_resource": network, "request_id": Token()})
    return DesiredObject(VPC, "Network", inputs.owner.base, (), (call,), "operation DONE")


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
    parameters: Parameters = {"project": inputs.project, "region": inputs.gke.region, "subnetwork_resource": subnet, "request_id": Token()}
    return DesiredObject(SUBNET, "Subnetwork", inputs.subnet, (VPC,), (Call("compute.subnetworks", "insert_unary", parameters),), "READY")


def _account(inputs: GkeInputs) -> DesiredObject:
    account = {"display_name": inputs.owner.base, "description": gcp_description(inputs.owner, ACCOUNT)}
    parameters: Parameters = {"name": f"projects/{inputs.project}", "account_id": inputs.owner.account, "service_account": account}
    call = Call("iam", "create_service_account", parameters)
    return DesiredObject(ACCOUNT, "ServiceAccount", inputs.owner.account, (), (call,), "readable")


def _binding(inputs: GkeInputs) -> DesiredObject:
    """Give the role of the account; its binding is added to those of the policy that is read, whose etag goes into the call."""
    binding = {"role": CLUSTER_ADMIN, "members": [f"serviceAccount:{inputs.account_email}"]}
    call = Call("resourcemanager.projects", "set_iam_policy", {"resource": f"projects/{inputs.project}", "policy": {"bindings": [binding]}})
    return DesiredObject(BINDING, "IAM binding", CLUSTER_ADMIN, (ACCOUNT,), (call,), "in the policy")
