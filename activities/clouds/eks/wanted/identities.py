"""The IAM roles of the control plane, the nodes, the EFS driver and the autoscaler."""

import json
from collections.abc import Mapping

from activities.clouds.desired.graph import (
    CloudCall,
    DesiredObject,
    Fact,
    Parameters,
    Token,
    Value,
)
from activities.clouds.eks.wanted.inputs import EksInputs
from activities.clouds.eks.wanted.partitions import node_principal_of

CLUSTER_ROLE = "iam/cluster"
NODE_ROLE = "iam/node"
EFS_ROLE = "iam/efs-csi"
AUTOSCALER_ROLE = "iam/autoscaler"
AUTOSCALER_POLICY = "iam/policy-autoscaler"
EFS_IDENTITY = "pia/efs-csi"
AUTOSCALER_IDENTITY = "pia/autoscaler"

AUTOSCALER_ACCOUNT = "cluster-autoscaler"
_EFS_ACCOUNT = "efs-csi-controller-sa"
_NAMESPACE = "kube-system"

_POLICY_VERSION = "2012-10-17"
_PODS = "pods.eks.amazonaws.com"


def identities(inputs: EksInputs) -> list[DesiredObject]:
    """Return the roles, and the policy that has no managed equivalent."""
    return [
        _role(inputs, CLUSTER_ROLE, "eks.amazonaws.com", ("AmazonEKSClusterPolicy",)),
        _role(
            inputs,
            NODE_ROLE,
            node_principal_of(inputs.eks.region),
            (
                "AmazonEKSWorkerNodePolicy",
                "AmazonEKS_CNI_Policy",
                "AmazonEC2ContainerRegistryReadOnly",
            ),
        ),
        _role(inputs, EFS_ROLE, _PODS, ("service-role/AmazonEFSCSIDriverPolicy",)),
        _policy(inputs),
        _role(inputs, AUTOSCALER_ROLE, _PODS, (), Fact(AUTOSCALER_POLICY)),
    ]


def pod_identities(inputs: EksInputs, cluster: str) -> list[DesiredObject]:
    """Return the associations of service accounts with roles.

    They must exist before the pods, which get credentials at admission.
    """
    return [
        _pod_identity(inputs, EFS_IDENTITY, EFS_ROLE, _EFS_ACCOUNT, cluster),
        _pod_identity(
            inputs, AUTOSCALER_IDENTITY, AUTOSCALER_ROLE, AUTOSCALER_ACCOUNT, cluster
        ),
    ]


def _role(
    inputs: EksInputs,
    key: str,
    service: str,
    managed: tuple[str, ...],
    own: Fact | None = None,
) -> DesiredObject:
    name = f"{inputs.owner.base}-{key.partition('/')[2]}"
    actions = (
        ["sts:AssumeRole", "sts:TagSession"] if service == _PODS else ["sts:AssumeRole"]
    )
    trust = _document(
        {"Effect": "Allow", "Principal": {"Service": service}, "Action": actions}
    )
    parameters: Parameters = {
        "RoleName": name,
        "AssumeRolePolicyDocument": trust,
        "Tags": inputs.tag_list(key, name),
    }
    create = CloudCall("iam", "create_role", parameters, {"arn": "Role.Arn"})
    policies: list[Value] = [
        f"arn:{inputs.partition}:iam::aws:policy/{policy}" for policy in managed
    ]
    if own is not None:
        policies.append(Fact(own.key, "arn"))
    attached = [
        CloudCall("iam", "attach_role_policy", {"RoleName": name, "PolicyArn": policy})
        for policy in policies
    ]
    return DesiredObject(
        key, "Role", name, (own.key,) if own else (), (create, *attached), "assumable"
    )


def _policy(inputs: EksInputs) -> DesiredObject:
    name = f"{inputs.owner.base}-autoscaler"
    read = {
        "Effect": "Allow",
        "Action": [
            "autoscaling:DescribeAutoScalingGroups",
            "autoscaling:DescribeAutoScalingInstances",
            "autoscaling:DescribeLaunchConfigurations",
            "autoscaling:DescribeScalingActivities",
            "ec2:DescribeImages",
            "ec2:DescribeInstanceTypes",
            "ec2:DescribeLaunchTemplateVersions",
            "ec2:GetInstanceTypesFromInstanceRequirements",
            "eks:DescribeNodegroup",
        ],
        "Resource": "*",
    }
    # Restrict the permission to the groups of this cluster, of all groups in the
    # account.
    own = {
        "StringEquals": {
            f"aws:ResourceTag/k8s.io/cluster-autoscaler/{inputs.owner.base}": "owned"
        }
    }
    change = {
        "Effect": "Allow",
        "Action": [
            "autoscaling:SetDesiredCapacity",
            "autoscaling:TerminateInstanceInAutoScalingGroup",
        ],
        "Resource": "*",
        "Condition": own,
    }
    parameters: Parameters = {
        "PolicyName": name,
        "PolicyDocument": _document(read, change),
        "Tags": inputs.tag_list(AUTOSCALER_POLICY, name),
    }
    call = CloudCall("iam", "create_policy", parameters, {"arn": "Policy.Arn"})
    return DesiredObject(AUTOSCALER_POLICY, "Policy", name, (), (call,), "present")


def _pod_identity(
    inputs: EksInputs, key: str, role: str, account: str, cluster: str
) -> DesiredObject:
    parameters: Parameters = {
        "clusterName": inputs.owner.base,
        "namespace": _NAMESPACE,
        "serviceAccount": account,
        "roleArn": Fact(role, "arn"),
        "clientRequestToken": Token(),
        "tags": inputs.tags(key),
    }
    call = CloudCall(
        "eks",
        "create_pod_identity_association",
        parameters,
        {"id": "association.associationId"},
    )
    return DesiredObject(
        key,
        "PodIdentity",
        f"{_NAMESPACE}/{account}",
        (cluster, role),
        (call,),
        "present",
    )


def _document(*statements: Mapping[str, object]) -> str:
    return json.dumps(
        {"Version": _POLICY_VERSION, "Statement": statements}, separators=(",", ":")
    )
