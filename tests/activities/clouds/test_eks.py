"""The objects of EKS clusters with their parameters, and refusals."""

import json
from typing import Any

import botocore.session
import pytest

from activities.clouds.desired.graph import Fact, arguments
from activities.clouds.eks.wanted.control_plane import access_key
from activities.clouds.eks.wanted.inputs import EksFacts, Reservation
from activities.clouds.eks.wanted.machines import Ec2Machine, interfaces_on
from tests.activities.clouds.builders import (
    BLOCK,
    L4,
    ROLE,
    TOKEN,
    an_eks_pool,
    call_of,
    classes,
    eks,
    key_of,
    keys,
    object_of,
    reasons,
    warned,
)

ACCESS = access_key(ROLE)
ZONES = ("us-east-2a", "us-east-2b", "us-east-2c")
NEEDS = {
    "net/vpc": (),
    "net/subnets": ("net/vpc",),
    "net/igw": ("net/vpc",),
    "net/eip": (),
    "net/nat": ("net/subnets", "net/eip", "net/igw"),
    "net/routes-public": ("net/igw", "net/subnets"),
    "net/routes-private": ("net/nat", "net/subnets", "net/routes-public"),
    "iam/cluster": (),
    "iam/node": (),
    "iam/efs-csi": (),
    "iam/policy-autoscaler": (),
    "iam/autoscaler": ("iam/policy-autoscaler",),
    "cluster": ("net/subnets", "iam/cluster"),
    ACCESS: ("cluster",),
    "sg/efs": ("net/vpc",),
    "efs": (),
    "efs/mounts": ("efs", "sg/efs", "net/subnets"),
    "addon/vpc-cni": ("cluster",),
    "addon/kube-proxy": ("cluster",),
    "addon/eks-pod-identity-agent": ("cluster",),
    "pia/efs-csi": ("cluster", "iam/efs-csi"),
    "pia/autoscaler": ("cluster", "iam/autoscaler"),
    "pool/system": ("cluster", "iam/node", "net/routes-private", "addon/vpc-cni"),
    "pool/gpu": ("cluster", "iam/node", "net/routes-private", "addon/vpc-cni"),
    "addon/coredns": ("pool/system",),
    "addon/aws-efs-csi-driver": ("pool/system", "pia/efs-csi"),
    "conn": ("cluster", ACCESS),
    "nodes/system": ("conn", "pool/system"),
    "chart/cluster-autoscaler": ("pool/system", "pia/autoscaler", "conn"),
    "sc": ("conn", "efs", "addon/aws-efs-csi-driver", "pia/efs-csi"),
}


def a_p5en_pool(**change: Any) -> dict[str, Any]:
    return an_eks_pool("p5en", className="p5en", **change)


def a_block(**change: Any) -> EksFacts:
    """Return EC2's description of a reservation that fits the pool of the tests."""
    found = {
        "zone": "us-east-2a",
        "instance_type": "p5en.48xlarge",
        "state": "active",
        "count": 2,
        **change,
    }
    return EksFacts(
        zones=ZONES, reservations={BLOCK: Reservation(**found)}, principal=ROLE
    )


ON_A_BLOCK = {"capacityBlock": {"capacityReservationId": BLOCK}, "nodeCount": 2}
WITH_EFA = {"fabric": {"type": "EFA"}}


def test_each_object_has_its_dependencies() -> None:
    made = eks(an_eks_pool())
    assert {each.key: each.needs for each in made.objects} == NEEDS
    assert (keys(made), made.refused, made.warnings) == (list(NEEDS), (), ())


def test_efa_adds_a_group_a_template_and_a_driver() -> None:
    made = eks(a_p5en_pool(**WITH_EFA))
    assert {each.key: each.needs for each in made.objects if each.key not in NEEDS} == {
        "sg/efa": ("net/vpc",),
        "lt/p5en": ("cluster", "sg/efa"),
        "pool/p5en": (
            "cluster",
            "iam/node",
            "net/routes-private",
            "addon/vpc-cni",
            "lt/p5en",
        ),
        "chart/aws-dranet": ("conn",),
    }


def test_a_plain_pool_has_its_type_and_disk_in_the_group() -> None:
    given = call_of(eks(an_eks_pool(nodeCount=2)), "pool/gpu", "create_nodegroup")
    assert given.pop("tags")["Name"] == f"{object_of(eks(), 'cluster').name}-gpu"
    assert given == {
        "clusterName": object_of(eks(), "cluster").name,
        "nodegroupName": "gpu",
        "nodeRole": "iam-node-arn",
        "scalingConfig": {"minSize": 2, "maxSize": 2, "desiredSize": 2},
        "subnets": ["net-subnets-private-us-east-2a"],
        "amiType": "AL2023_x86_64_NVIDIA",
        "instanceTypes": ["g6.2xlarge"],
        "diskSize": 100,
        "labels": {"modelplane.ai/gpu": "nvidia-l4", "modelplane.ai/pool": "gpu"},
        "taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}],
        "updateConfig": {"maxUnavailable": 1, "updateStrategy": "MINIMAL"},
        "clientRequestToken": TOKEN,
    }


def test_the_system_group() -> None:
    given = call_of(eks(), "pool/system", "create_nodegroup")
    assert (given["instanceTypes"], given["amiType"]) == (
        ["m6i.xlarge"],
        "AL2023_x86_64_STANDARD",
    )
    assert given["scalingConfig"] == {"minSize": 1, "maxSize": 2, "desiredSize": 1}
    assert (given["labels"], "taints" in given, "diskSize" in given) == (
        {"modelplane.ai/pool": "system"},
        False,
        False,
    )


def test_a_capacity_block_is_in_a_template_and_the_group_has_no_type_and_no_disk() -> (
    None
):
    made = eks(a_p5en_pool(**ON_A_BLOCK), facts=a_block())
    data = call_of(made, "lt/p5en", "create_launch_template")["LaunchTemplateData"]
    assert data == {
        "InstanceType": "p5en.48xlarge",
        "BlockDeviceMappings": [
            {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 500}}
        ],
        "InstanceMarketOptions": {"MarketType": "capacity-block"},
        "CapacityReservationSpecification": {
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationId": BLOCK},
        },
    }
    given = call_of(made, "pool/p5en", "create_nodegroup")
    assert (given["capacityType"], "instanceTypes" in given, "diskSize" in given) == (
        "CAPACITY_BLOCK",
        False,
        False,
    )
    assert given["launchTemplate"] == {
        "name": object_of(made, "lt/p5en").name,
        "version": "lt-p5en-version",
    }
    assert (given["scalingConfig"]["desiredSize"], made.warnings) == (2, ())


def test_a_scheduled_block_starts_without_nodes() -> None:
    made = eks(a_p5en_pool(**ON_A_BLOCK), facts=a_block(state="scheduled"))
    assert call_of(made, "pool/p5en", "create_nodegroup")["scalingConfig"] == {
        "minSize": 0,
        "maxSize": 2,
        "desiredSize": 0,
    }
    assert warned(made) == [("CapacityBlockScheduled", "pool p5en")]


BLOCKS = [
    (
        "another zone",
        {"zone": "us-east-2b"},
        "is in zone us-east-2b; set zones: [us-east-2b]",
    ),
    (
        "another type",
        {"instance_type": "p5.48xlarge"},
        "is for p5.48xlarge, and the class of the pool has p5en.48xlarge",
    ),
    ("at its end", {"state": "expired"}, "is expired, not active or scheduled"),
    ("too small", {"count": 1}, "has 1 machines, and the pool may have 2"),
]


@pytest.mark.parametrize(
    ("change", "text"), [row[1:] for row in BLOCKS], ids=[row[0] for row in BLOCKS]
)
def test_a_capacity_block_that_cannot_fill_its_pool_is_refused_before_anything_is_created(
    change: dict[str, Any], text: str
) -> None:
    made = eks(a_p5en_pool(**ON_A_BLOCK), facts=a_block(**change))
    assert [problem.text for problem in made.refused] == [
        f"capacity block {BLOCK} {text}"
    ]
    assert (reasons(made), made.objects) == ([("InvalidInput", "pool p5en")], ())


def test_a_pool_in_two_zones_cannot_be_on_a_block() -> None:
    made = eks(
        a_p5en_pool(**ON_A_BLOCK | {"zones": ["us-east-2a", "us-east-2b"]}),
        facts=a_block(),
    )
    assert reasons(made) == [("InvalidInput", "pool p5en")]


def test_without_account_access_a_block_is_checked_later_with_a_warning() -> None:
    made = eks(a_p5en_pool(**ON_A_BLOCK, zones=["us-east-2a", "us-east-2b"]))
    assert warned(made) == [
        ("SeveralZones", "pool p5en"),
        ("CapacityBlockUnknown", "pool p5en"),
    ]


def test_the_template_of_p5en_has_an_interface_for_each_of_its_16_cards() -> None:
    made = eks(a_p5en_pool(**WITH_EFA))
    interfaces = call_of(made, "lt/p5en", "create_launch_template")[
        "LaunchTemplateData"
    ]["NetworkInterfaces"]
    groups = ["sg-efa-id--", "cluster-clusterSecurityGroupId"]
    assert interfaces == [
        {
            "NetworkCardIndex": card,
            "DeviceIndex": 0 if card == 0 else 1,
            "InterfaceType": "efa" if card == 0 else "efa-only",
            "DeleteOnTermination": True,
            "Groups": groups,
        }
        for card in range(16)
    ]
    assert "capacityType" not in call_of(made, "pool/p5en", "create_nodegroup")


def test_the_driver_of_efa_runs_on_gpu_nodes() -> None:
    given = call_of(eks(a_p5en_pool(**WITH_EFA)), "chart/aws-dranet", "install")
    assert (given["chart"], given["version"], given["namespace"]) == (
        "aws-dranet",
        "1.0.0",
        "kube-system",
    )
    assert given["values"] == {
        "tolerations": [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
        ]
    }


def test_the_efa_group_allows_only_traffic_among_its_members() -> None:
    made = eks(a_p5en_pool(**WITH_EFA))
    own = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "sg-efa-id--"}]}]
    assert (
        call_of(made, "sg/efa", "authorize_security_group_ingress")["IpPermissions"]
        == own
    )
    assert (
        call_of(made, "sg/efa", "authorize_security_group_egress")["IpPermissions"]
        == own
    )
    out = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
    assert [
        call_of(made, key, "revoke_security_group_egress")["IpPermissions"]
        for key in ("sg/efa", "sg/efs")
    ] == [out, out]


CARDS = [
    ("p5.48xlarge", 32),
    ("p5e.48xlarge", 32),
    ("p5en.48xlarge", 16),
    ("p4d.24xlarge", 4),
    ("p4de.24xlarge", 4),
]


def cards_of(instance_type: str, **asked: int) -> tuple[int, list[tuple[str, str]]]:
    block = {
        "provider": "EKS",
        "eks": {
            "instanceType": instance_type,
            "accelerator": {"type": "nvidia-x", "count": 8},
        },
    }
    machines = {
        key.replace("_", "."): Ec2Machine(interfaces=interfaces_on(count))
        for key, count in asked.items()
    }
    facts = EksFacts(zones=ZONES, machines=machines, principal=ROLE)
    made = eks(
        an_eks_pool("efa", className="x", **WITH_EFA),
        known=classes(x=block),
        facts=facts,
    )
    return len(
        call_of(made, "lt/efa", "create_launch_template")["LaunchTemplateData"][
            "NetworkInterfaces"
        ]
    ), warned(made)


@pytest.mark.parametrize(("instance_type", "count"), CARDS)
def test_cards_of_known_types(instance_type: str, count: int) -> None:
    assert cards_of(instance_type) == (count, [])


def test_cards_of_other_types_come_from_ec2_or_are_one() -> None:
    assert cards_of("g6e.48xlarge", g6e_48xlarge=4) == (4, [])
    assert cards_of("g6e.48xlarge") == (1, [("NetworkCardsUnknown", "pool efa")])


def test_a_template_has_no_arguments_before_the_cluster_reports_its_group() -> None:
    def not_yet(fact: Fact) -> str:
        if fact.key == "cluster":
            raise LookupError(fact.name)
        return "known"

    (call,) = object_of(eks(a_p5en_pool(**WITH_EFA)), "lt/p5en").calls
    with pytest.raises(LookupError, match="clusterSecurityGroupId"):
        arguments(call, not_yet, TOKEN)


def test_a_class_without_a_block_for_the_cloud_does_not_block_other_pools() -> None:
    made = eks(an_eks_pool("a", className="l4"), an_eks_pool("b"), known=classes(l4=L4))
    assert reasons(made) == [("InvalidNodePool", "pool a")]
    assert (
        made.refused[0].text
        == "InferenceClass l4 has no spec.provisioning.eks; add it, or use another class"
    )
    assert [key for key in keys(made) if key.startswith("pool/")] == [
        "pool/system",
        "pool/b",
    ]


def test_a_pool_called_system_does_not_change_the_system_pool() -> None:
    made = eks(an_eks_pool("system"))
    assert reasons(made) == [("InvalidNodePool", "pool system")]
    assert call_of(made, "pool/system", "create_nodegroup")["instanceTypes"] == [
        "m6i.xlarge"
    ]


INVALID: list[tuple[str, dict[str, Any], str]] = [
    (
        "a full version",
        {"kubernetesVersion": "1.36.1"},
        'kubernetesVersion "1.36.1" is invalid: use a minor version, such as "1.36"',
    ),
    (
        "a zone as region",
        {"region": "us-east-2a"},
        'region "us-east-2a" is a zone: use us-east-2, and name the zone in zones of a pool',
    ),
    (
        "no region",
        {"region": "Ohio"},
        'region "Ohio" is not a region of AWS, such as us-east-2',
    ),
]


@pytest.mark.parametrize(
    ("block", "text"), [row[1:] for row in INVALID], ids=[row[0] for row in INVALID]
)
def test_invalid_input_for_eks_is_refused_before_the_first_creation(
    block: dict[str, Any], text: str
) -> None:
    made = eks(facts=EksFacts(), **block)
    assert ([problem.text for problem in made.refused], made.objects) == ([text], ())


def test_a_zone_that_is_named_twice_is_refused() -> None:
    made = eks(an_eks_pool(zones=["us-east-2a", "us-east-2a"]))
    assert ([problem.text for problem in made.refused], made.objects) == (
        ["a zone is named twice"],
        (),
    )


def test_a_version_without_dra_is_warned_about() -> None:
    assert warned(eks(kubernetesVersion="1.33")) == [("OldKubernetes", "")]


def test_roles_are_for_their_services_and_have_their_policies() -> None:
    made = eks()
    found = {}
    for key in ("iam/cluster", "iam/node", "iam/efs-csi", "iam/autoscaler"):
        trust = json.loads(
            call_of(made, key, "create_role")["AssumeRolePolicyDocument"]
        )["Statement"]
        attached = [
            arguments(call, lambda fact: fact.key, TOKEN)["PolicyArn"]
            for call in object_of(made, key).calls[1:]
        ]
        found[key] = (trust[0]["Principal"]["Service"], trust[0]["Action"], attached)
    pods, managed = ["sts:AssumeRole", "sts:TagSession"], "arn:aws:iam::aws:policy/"
    nodes = [
        "AmazonEKSWorkerNodePolicy",
        "AmazonEKS_CNI_Policy",
        "AmazonEC2ContainerRegistryReadOnly",
    ]
    assert found == {
        "iam/cluster": (
            "eks.amazonaws.com",
            ["sts:AssumeRole"],
            [f"{managed}AmazonEKSClusterPolicy"],
        ),
        "iam/node": (
            "ec2.amazonaws.com",
            ["sts:AssumeRole"],
            [f"{managed}{name}" for name in nodes],
        ),
        "iam/efs-csi": (
            "pods.eks.amazonaws.com",
            pods,
            [f"{managed}service-role/AmazonEFSCSIDriverPolicy"],
        ),
        "iam/autoscaler": ("pods.eks.amazonaws.com", pods, ["iam/policy-autoscaler"]),
    }


def test_the_autoscaler_changes_only_groups_of_its_cluster() -> None:
    made = eks()
    read, change = json.loads(
        call_of(made, "iam/policy-autoscaler", "create_policy")["PolicyDocument"]
    )["Statement"]
    assert change["Action"] == [
        "autoscaling:SetDesiredCapacity",
        "autoscaling:TerminateInstanceInAutoScalingGroup",
    ]
    tag = f"aws:ResourceTag/k8s.io/cluster-autoscaler/{object_of(made, 'cluster').name}"
    assert change["Condition"] == {"StringEquals": {tag: "owned"}}
    assert all(":Describe" in action or ":Get" in action for action in read["Action"])


def test_policies_belong_to_the_partition_of_the_region() -> None:
    session = botocore.session.get_session()
    for region in (
        "us-east-2",
        "cn-north-1",
        "us-gov-west-1",
        "us-iso-east-1",
        "us-isob-east-1",
        "us-isof-south-1",
        "eu-isoe-west-1",
        "eusc-de-east-1",
    ):
        made = eks(facts=EksFacts(), region=region)
        partition = session.get_partition_for_region(region)
        policy = call_of(made, key_of(made, "AccessEntry"), "associate_access_policy")[
            "policyArn"
        ]
        assert (
            policy
            == f"arn:{partition}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
        )


def test_the_control_plane_and_its_access_entries() -> None:
    made = eks()
    given = call_of(made, "cluster", "create_cluster")
    assert (given["version"], given["roleArn"], given["clientRequestToken"]) == (
        "1.36",
        "iam-cluster-arn",
        TOKEN,
    )
    assert given["accessConfig"] == {
        "authenticationMode": "API_AND_CONFIG_MAP",
        "bootstrapClusterCreatorAdminPermissions": True,
    }
    network = given["resourcesVpcConfig"]
    assert (
        network["endpointPublicAccess"],
        network["endpointPrivateAccess"],
        len(network["subnetIds"]),
    ) == (True, True, 6)
    entry = call_of(made, ACCESS, "associate_access_policy")
    assert (entry["principalArn"], entry["accessScope"]) == (ROLE, {"type": "cluster"})


def test_add_ons_adopt_the_preinstalled_ones_of_a_new_cluster() -> None:
    made = eks()
    add_ons = [key for key in keys(made) if key.startswith("addon/")]
    assert {
        call_of(made, key, "create_addon")["resolveConflicts"] for key in add_ons
    } == {"OVERWRITE"}


def test_nodes_reach_the_internet_through_one_nat_gateway() -> None:
    made = eks()
    assert (
        call_of(made, "net/nat", "create_nat_gateway")["SubnetId"]
        == "net-subnets-public-us-east-2a"
    )
    private = [
        call
        for call in object_of(made, "net/routes-private").calls
        if call.operation == "associate_route_table"
    ]
    assert len(private) == 3
    assert (
        call_of(made, "net/routes-private", "create_route")["NatGatewayId"]
        == "net-nat-id-"
    )
    assert (
        call_of(made, "net/routes-public", "create_route")["GatewayId"] == "net-igw-id-"
    )


def test_only_public_subnets_give_public_addresses_and_take_load_balancers() -> None:
    calls = object_of(eks(), "net/subnets").calls
    created = [call.parameters for call in calls if call.operation == "create_subnet"]
    tagged = [
        str(parameters["CidrBlock"])
        for parameters in created
        if "kubernetes.io/role/elb" in repr(parameters)
    ]
    assert tagged == ["10.0.0.0/20", "10.0.16.0/20", "10.0.32.0/20"]
    opened = [
        call.parameters["SubnetId"]
        for call in calls
        if call.operation == "modify_subnet_attribute"
    ]
    assert opened == [Fact("net/subnets", f"public-{zone}") for zone in ZONES]


def test_claims_of_caches_are_access_points_of_the_file_system() -> None:
    manifest = call_of(eks(), "sc", "apply")["manifest"]
    assert (manifest["metadata"]["name"], manifest["provisioner"]) == (
        "modelplane-rwx-efs",
        "efs.csi.aws.com",
    )
    assert manifest["parameters"] == {
        "provisioningMode": "efs-ap",
        "fileSystemId": "efs-id-----",
        "directoryPerms": "700",
    }
    assert (manifest["volumeBindingMode"], manifest["allowVolumeExpansion"]) == (
        "Immediate",
        False,
    )
