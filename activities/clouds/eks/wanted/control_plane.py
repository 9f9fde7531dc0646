"""The control plane of an EKS cluster, access entries, add-ons, and Helm releases."""

from activities.clouds.desired.graph import (
    CloudCall,
    DesiredObject,
    Fact,
    Parameters,
    Token,
)
from activities.clouds.desired.nodes import GPU_TAINT_KEY
from activities.clouds.desired.owner import UNKNOWN_DIGITS
from activities.clouds.eks.wanted.identities import (
    AUTOSCALER_ACCOUNT,
    AUTOSCALER_IDENTITY,
    CLUSTER_ROLE,
    EFS_IDENTITY,
)
from activities.clouds.eks.wanted.inputs import UNKNOWN_PRINCIPAL, EksInputs
from activities.clouds.eks.wanted.network import SUBNETS, private_subnet, public_subnet
from api_types import names
from api_types.labels import POD_IDENTITY
from api_types.pins.charts import AWS_DRANET, CLUSTER_AUTOSCALER, ChartPin

CLUSTER = "cluster"
CONNECTION = "conn"
ACCESS = "access/"
AUTOSCALER = "chart/cluster-autoscaler"
EFA_DRIVER = "chart/aws-dranet"
CNI = "addon/vpc-cni"
EFS_DRIVER = "addon/aws-efs-csi-driver"

# The name of the cluster's fact with the id of the security group that EKS creates.
SECURITY_GROUP = "clusterSecurityGroupId"


def control_plane(inputs: EksInputs) -> DesiredObject:
    """Return the control plane, in the subnets of all zones that EKS supports."""
    subnets = list[Fact]()
    for zone in inputs.control_plane_zones:
        subnets += [public_subnet(zone), private_subnet(zone)]
    parameters: Parameters = {
        "name": inputs.owner.base,
        "version": inputs.eks.kubernetes_version,
        "roleArn": Fact(CLUSTER_ROLE, "arn"),
        "resourcesVpcConfig": {
            "subnetIds": subnets,
            "endpointPublicAccess": True,
            "endpointPrivateAccess": True,
        },
        "accessConfig": {
            "authenticationMode": "API_AND_CONFIG_MAP",
            "bootstrapClusterCreatorAdminPermissions": True,
        },
        # EKS charges for extended support, which is its default.
        "upgradePolicy": {"supportType": "STANDARD"},
        "tags": inputs.tags(CLUSTER),
        "clientRequestToken": Token(),
    }
    call = CloudCall(
        "eks",
        "create_cluster",
        parameters,
        {SECURITY_GROUP: "cluster.resourcesVpcConfig.clusterSecurityGroupId"},
    )
    return DesiredObject(
        CLUSTER,
        "Cluster",
        inputs.owner.base,
        (SUBNETS, CLUSTER_ROLE),
        (call,),
        "status ACTIVE",
    )


def access_key(principal: str) -> str:
    """Return the key of a role's access entry.

    Each role has its own key, so the entry of a role that is no longer used is deleted.
    """
    if principal == UNKNOWN_PRINCIPAL:
        return f"{ACCESS}{UNKNOWN_DIGITS}"
    return f"{ACCESS}{names.digest(principal)}"


def access(inputs: EksInputs) -> DesiredObject:
    """Return the access entry of the current role, which may differ from the creator's."""
    key = access_key(inputs.facts.principal)
    who = {"clusterName": inputs.owner.base, "principalArn": inputs.facts.principal}
    create = CloudCall(
        "eks",
        "create_access_entry",
        {**who, "clientRequestToken": Token(), "tags": inputs.tags(key)},
    )
    policies = f"arn:{inputs.partition}:eks::aws:cluster-access-policy"
    policy = f"{policies}/AmazonEKSClusterAdminPolicy"
    allow = CloudCall(
        "eks",
        "associate_access_policy",
        {**who, "policyArn": policy, "accessScope": {"type": "cluster"}},
    )
    return DesiredObject(
        key,
        "AccessEntry",
        inputs.facts.principal,
        (CLUSTER,),
        (create, allow),
        "present",
    )


def connection(inputs: EksInputs) -> DesiredObject:
    """Return the connection to the cluster."""
    return DesiredObject(
        CONNECTION,
        "Connection",
        inputs.owner.cluster,
        (CLUSTER, access_key(inputs.facts.principal)),
        (),
        "API server answers /readyz",
    )


def first_add_ons(inputs: EksInputs) -> list[DesiredObject]:
    """Return the add-ons that nodes need."""
    return [
        _add_on(inputs, key, (CLUSTER,))
        for key in (CNI, "addon/kube-proxy", "addon/eks-pod-identity-agent")
    ]


def later_add_ons(inputs: EksInputs, system_pool: str) -> list[DesiredObject]:
    """Return the add-ons whose pods need nodes."""
    return [
        _add_on(inputs, "addon/coredns", (system_pool,)),
        _add_on(inputs, EFS_DRIVER, (system_pool, EFS_IDENTITY)),
    ]


def _add_on(inputs: EksInputs, key: str, needs: tuple[str, ...]) -> DesiredObject:
    name = key.partition("/")[2]
    parameters: Parameters = {
        "clusterName": inputs.owner.base,
        "addonName": name,
        # A new cluster already runs some add-ons. With `NONE` these would be in
        # conflict.
        "resolveConflicts": "OVERWRITE",
        "clientRequestToken": Token(),
        "tags": inputs.tags(key),
    }
    return DesiredObject(
        key,
        "Addon",
        name,
        needs,
        (CloudCall("eks", "create_addon", parameters),),
        "status ACTIVE",
    )


def autoscaler(inputs: EksInputs, system_pool: str) -> DesiredObject:
    """Return the release that scales pools."""
    values: Parameters = {
        "cloudProvider": "aws",
        "awsRegion": inputs.eks.region,
        "autoDiscovery": {"clusterName": inputs.owner.base},
        "rbac": {"serviceAccount": {"create": True, "name": AUTOSCALER_ACCOUNT}},
        "extraArgs": {"balance-similar-node-groups": True},
        # Pods get their role when they start, so the pods must be restarted after a new
        # association.
        "podAnnotations": {POD_IDENTITY: Fact(AUTOSCALER_IDENTITY)},
    }
    return _release(
        AUTOSCALER,
        CLUSTER_AUTOSCALER,
        (system_pool, AUTOSCALER_IDENTITY, CONNECTION),
        values,
    )


def efa_driver() -> DesiredObject:
    """Return the release that assigns EFA interfaces to pods.

    Without the toleration it would run on no GPU node.
    """
    toleration: Parameters = {
        "key": GPU_TAINT_KEY,
        "operator": "Exists",
        "effect": "NoSchedule",
    }
    return _release(
        EFA_DRIVER, AWS_DRANET, (CONNECTION,), {"tolerations": [toleration]}
    )


def _release(
    key: str, pin: ChartPin, needs: tuple[str, ...], values: Parameters
) -> DesiredObject:
    parameters: Parameters = {
        "release": pin.release,
        "chart": pin.chart,
        "repository": pin.repository,
        "version": pin.version,
        "namespace": pin.namespace,
        "values": values,
    }
    return DesiredObject(
        key,
        "HelmRelease",
        pin.release,
        needs,
        (CloudCall("helm", "install", parameters),),
        "deployed",
    )
