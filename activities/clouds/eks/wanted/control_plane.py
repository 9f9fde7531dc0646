"""The control plane of an EKS cluster, who may log in to it, its add-ons, and the releases that only EKS needs."""

from activities.clouds.eks.wanted.identities import AUTOSCALER_ACCOUNT, AUTOSCALER_IDENTITY, CLUSTER_ROLE, EFS_IDENTITY
from activities.clouds.eks.wanted.inputs import UNKNOWN_PRINCIPAL, EksInputs
from activities.clouds.eks.wanted.network import SUBNETS, private_subnet, public_subnet
from activities.clouds.graph import Call, DesiredObject, Fact, Parameters, Token
from activities.clouds.nodes import GPU_TAINT_KEY
from activities.clouds.owner import UNKNOWN_DIGITS
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

# The name by which the group that EKS makes for the cluster is among the facts of the cluster.
SECURITY_GROUP = "clusterSecurityGroupId"


def control_plane(inputs: EksInputs) -> DesiredObject:
    """Give the control plane, in all subnets."""
    subnets = [subnet(pair.zone) for pair in inputs.pairs for subnet in (public_subnet, private_subnet)]
    parameters: Parameters = {
        "name": inputs.owner.base,
        "version": inputs.eks.kubernetes_version,
        "roleArn": Fact(CLUSTER_ROLE, "arn"),
        "resourcesVpcConfig": {"subnetIds": subnets, "endpointPublicAccess": True, "endpointPrivateAccess": True},
        "accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP", "bootstrapClusterCreatorAdminPermissions": True},
        "tags": inputs.tags(CLUSTER),
        "clientRequestToken": Token(),
    }
    call = Call("eks", "create_cluster", parameters, {SECURITY_GROUP: "cluster.resourcesVpcConfig.clusterSecurityGroupId"})
    return DesiredObject(CLUSTER, "Cluster", inputs.owner.base, (SUBNETS, CLUSTER_ROLE), (call,), "status ACTIVE")


def access_key(principal: str) -> str:
    """Give the key of the entry of a role: each has its own, so that the entry of a role that is not used any more is deleted."""
    return f"{ACCESS}{UNKNOWN_DIGITS if principal == UNKNOWN_PRINCIPAL else names.digest(principal)}"


def access(inputs: EksInputs) -> DesiredObject:
    """Give the entry of the role that makes the calls now: it may be another one than that which created the cluster."""
    key = access_key(inputs.facts.principal)
    who = {"clusterName": inputs.owner.base, "principalArn": inputs.facts.principal}
    create = Call("eks", "create_access_entry", {**who, "clientRequestToken": Token(), "tags": inputs.tags(key)})
    policy = f"arn:{inputs.partition}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
    allow = Call("eks", "associate_access_policy", {**who, "policyArn": policy, "accessScope": {"type": "cluster"}})
    return DesiredObject(key, "AccessEntry", inputs.facts.principal, (CLUSTER,), (create, allow), "present")


def connection(inputs: EksInputs) -> DesiredObject:
    """Give the record of how the cluster is reached."""
    return DesiredObject(
        CONNECTION, "Connection", inputs.owner.cluster, (CLUSTER, access_key(inputs.facts.principal)), (), "API server answers /readyz"
    )


def first_add_ons(inputs: EksInputs) -> list[DesiredObject]:
    """Give the add-ons that nodes need."""
    return [_add_on(inputs, key, (CLUSTER,)) for key in (CNI, "addon/kube-proxy", "addon/eks-pod-identity-agent")]


def later_add_ons(inputs: EksInputs, system_pool: str) -> list[DesiredObject]:
    """Give the add-ons whose pods need nodes."""
    return [
        _add_on(inputs, "addon/coredns", (system_pool,)),
        _add_on(inputs, EFS_DRIVER, (system_pool, EFS_IDENTITY)),
    ]


def _add_on(inputs: EksInputs, key: str, needs: tuple[str, ...]) -> DesiredObject:
    name = key.partition("/")[2]
    parameters: Parameters = {
        "clusterName": inputs.owner.base,
        "addonName": name,
        # A new cluster runs some of them already, which `NONE` would leave in conflict.
        "resolveConflicts": "OVERWRITE",
        "clientRequestToken": Token(),
        "tags": inputs.tags(key),
    }
    return DesiredObject(key, "Addon", name, needs, (Call("eks", "create_addon", parameters),), "status ACTIVE")


def autoscaler(inputs: EksInputs, system_pool: str) -> DesiredObject:
    """Give the release that changes the size of pools."""
    values: Parameters = {
        "cloudProvider": "aws",
        "awsRegion": inputs.eks.region,
        "autoDiscovery": {"clusterName": inputs.owner.base},
        "rbac": {"serviceAccount": {"create": True, "name": AUTOSCALER_ACCOUNT}},
        "extraArgs": {"balance-similar-node-groups": True},
        # Pods get their role when they start: another association has to start them anew.
        "podAnnotations": {POD_IDENTITY: Fact(AUTOSCALER_IDENTITY)},
    }
    return _release(AUTOSCALER, CLUSTER_AUTOSCALER, (system_pool, AUTOSCALER_IDENTITY, CONNECTION), values)


def efa_driver() -> DesiredObject:
    """Give the release that gives EFA interfaces to pods. Without the toleration it would run on no GPU node."""
    toleration: Parameters = {"key": GPU_TAINT_KEY, "operator": "Exists", "effect": "NoSchedule"}
    return _release(EFA_DRIVER, AWS_DRANET, (CONNECTION,), {"tolerations": [toleration]})


def _release(key: str, pin: ChartPin, needs: tuple[str, ...], values: Parameters) -> DesiredObject:
    parameters: Parameters = {
        "release": pin.release,
        "chart": pin.chart,
        "repository": pin.repository,
        "version": pin.version,
        "namespace": pin.namespace,
        "values": values,
    }
    return DesiredObject(key, "HelmRelease", pin.release, needs, (Call("helm", "install", parameters),), "deployed")
