"""Control planes of the fake EKS."""

import pytest

from fakes.aws.fake import FakeAws
from fakes.aws.faults import AwsFault, FaultKind
from tests.fakes.aws.infrastructure import CLUSTER, Infrastructure, code, trust

pytestmark = pytest.mark.slow

ENTRY = "arn:aws:iam::100000000000:role/other"


@pytest.fixture
def cloud(aws: FakeAws) -> Infrastructure:
    """Return a VPC and roles."""
    return Infrastructure(aws).build(way_out=False)


def test_a_cluster_is_creating_then_active_and_hands_out_its_endpoint_only_then(
    cloud: Infrastructure,
) -> None:
    made = cloud.create_cluster()
    assert "endpoint" not in made
    assert "clusterSecurityGroupId" not in made["resourcesVpcConfig"]
    assert cloud.until(cloud.cluster_state, "ACTIVE") == [
        "CREATING",
        "CREATING",
        "ACTIVE",
    ]
    ready = cloud.eks.describe_cluster(name=CLUSTER)["cluster"]
    assert ready["endpoint"].startswith("https://")
    group = cloud.ec2.describe_security_groups(
        GroupIds=[ready["resourcesVpcConfig"]["clusterSecurityGroupId"]]
    )["SecurityGroups"][0]
    assert group["GroupName"].startswith(f"eks-cluster-sg-{CLUSTER}-")
    assert {"Key": "aws:eks:cluster-name", "Value": CLUSTER} in group["Tags"]
    assert group["VpcId"] == cloud.vpc


def test_a_cluster_that_is_deleted_is_deleting_then_gone_with_its_group_and_interfaces(
    cloud: Infrastructure,
) -> None:
    before = cloud.aws.remains()
    cloud.ready_cluster().eks.delete_cluster(name=CLUSTER)
    assert cloud.until(cloud.cluster_state, "gone") == ["DELETING", "DELETING", "gone"]
    assert cloud.aws.remains() == before


def test_a_cluster_cannot_be_deleted_while_it_is_creating(
    cloud: Infrastructure,
) -> None:
    cloud.create_cluster()
    assert code(cloud.eks.delete_cluster, name=CLUSTER) == "ResourceInUseException"
    cloud.until(cloud.cluster_state, "ACTIVE")
    cloud.eks.delete_cluster(name=CLUSTER)


def test_a_second_cluster_with_the_same_name_is_rejected(cloud: Infrastructure) -> None:
    cloud.create_cluster()
    assert code(cloud.create_cluster) == "ResourceInUseException"


def test_the_same_token_gives_the_same_answer_and_other_parameters_are_refused(
    cloud: Infrastructure,
) -> None:
    made = cloud.create_cluster(clientRequestToken="token")
    assert cloud.create_cluster(clientRequestToken="token") == made
    assert (
        code(cloud.create_cluster, clientRequestToken="token", version="1.35")
        == "InvalidParameterException"
    )
    assert cloud.aws.made("CreateCluster") == 1


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"roleArn": ENTRY}, "InvalidParameterException"),
        ({"version": "1.12"}, "InvalidParameterException"),
        (
            {
                "resourcesVpcConfig": {
                    "subnetIds": ["subnet-00000000", "subnet-00000001"]
                }
            },
            "InvalidParameterException",
        ),
    ],
    ids=["unknown role", "unknown version", "unknown subnets"],
)
def test_invalid_calls_that_moto_accepts_are_rejected(
    cloud: Infrastructure, change: dict[str, object], wanted: str
) -> None:
    assert code(cloud.create_cluster, **change) == wanted
    assert cloud.eks.list_clusters()["clusters"] == []


def test_a_role_that_does_not_trust_eks_is_refused(cloud: Infrastructure) -> None:
    assert (
        code(cloud.create_cluster, roleArn=cloud.roles["node"])
        == "InvalidParameterException"
    )


def test_subnets_in_one_zone_are_refused(cloud: Infrastructure) -> None:
    one = {"subnetIds": [cloud.public[0], cloud.private[0]]}
    assert (
        code(cloud.create_cluster, resourcesVpcConfig=one)
        == "InvalidParameterException"
    )


def test_a_zone_without_eks_and_efs_is_refused() -> None:
    with FakeAws("us-east-1", unsupported_zones=["us-east-1b"]) as aws:
        cloud = Infrastructure(aws).build(way_out=False)
        assert code(cloud.create_cluster) == "UnsupportedAvailabilityZoneException"
        system = cloud.efs.create_file_system(CreationToken="token")["FileSystemId"]
        for _ in range(3):
            cloud.efs.describe_file_systems(FileSystemId=system)
        where = {"FileSystemId": system, "SubnetId": cloud.private[1]}
        assert (
            code(cloud.efs.create_mount_target, **where)
            == "UnsupportedAvailabilityZone"
        )


def test_a_cluster_of_another_owner_may_already_have_the_name(
    cloud: Infrastructure,
) -> None:
    cloud.aws.fault(AwsFault(FaultKind.FOREIGN, "CreateCluster"))
    assert (
        code(cloud.create_cluster, tags={"modelplane.ai/owner": "1234abcd"})
        == "ResourceInUseException"
    )
    assert cloud.eks.describe_cluster(name=CLUSTER)["cluster"]["tags"] == {
        "modelplane.ai/owner": "00000000"
    }


def test_a_cluster_can_end_in_its_failed_state(cloud: Infrastructure) -> None:
    cloud.aws.fault(AwsFault(FaultKind.FAIL, "CreateCluster"))
    cloud.create_cluster()
    cloud.until(cloud.cluster_state, "FAILED")
    cloud.eks.delete_cluster(name=CLUSTER)
    cloud.until(cloud.cluster_state, "gone")


def test_a_cluster_can_vanish_between_two_reads(cloud: Infrastructure) -> None:
    cloud.aws.fault(AwsFault(FaultKind.VANISH, "CreateCluster", times=2))
    cloud.create_cluster()
    assert cloud.until(cloud.cluster_state, "gone") == [
        "CREATING",
        "CREATING",
        "ACTIVE",
        "gone",
    ]


def test_a_new_role_is_not_assumable_for_a_while(cloud: Infrastructure) -> None:
    cloud.aws.fault(AwsFault(FaultKind.ROLE_NOT_ASSUMABLE, "CreateCluster", times=2))
    assert [code(cloud.create_cluster) for _ in range(2)] == [
        "InvalidParameterException"
    ] * 2
    cloud.create_cluster()


def test_a_version_goes_up_by_one_and_the_update_takes_time(
    cloud: Infrastructure,
) -> None:
    cloud.create_cluster(version="1.34")
    cloud.until(cloud.cluster_state, "ACTIVE")
    assert (
        code(cloud.eks.update_cluster_version, name=CLUSTER, version="1.36")
        == "InvalidParameterException"
    )
    update = cloud.eks.update_cluster_version(name=CLUSTER, version="1.35")["update"]
    assert update["status"] == "InProgress"
    assert (
        code(cloud.eks.update_cluster_version, name=CLUSTER, version="1.35")
        == "ResourceInUseException"
    )
    cloud.until(
        lambda: cloud.eks.describe_update(name=CLUSTER, updateId=update["id"])[
            "update"
        ]["status"],
        "Successful",
    )
    assert cloud.eks.describe_cluster(name=CLUSTER)["cluster"]["version"] == "1.35"
    assert cloud.cluster_state() == "ACTIVE"


def test_an_update_can_fail(cloud: Infrastructure) -> None:
    cloud.ready_cluster().aws.fault(
        AwsFault(FaultKind.FAIL, "UpdateClusterConfig", code="SubnetNotFound")
    )
    access = {"authenticationMode": "API"}
    update = cloud.eks.update_cluster_config(name=CLUSTER, accessConfig=access)[
        "update"
    ]["id"]
    cloud.until(
        lambda: cloud.eks.describe_update(name=CLUSTER, updateId=update)["update"][
            "status"
        ],
        "Failed",
    )
    assert (
        cloud.eks.describe_update(name=CLUSTER, updateId=update)["update"]["errors"][0][
            "errorCode"
        ]
        == "SubnetNotFound"
    )
    assert (
        cloud.eks.describe_cluster(name=CLUSTER)["cluster"]["accessConfig"][
            "authenticationMode"
        ]
        == "API_AND_CONFIG_MAP"
    )


def test_access_entries_need_a_cluster_that_has_them(cloud: Infrastructure) -> None:
    cloud.create_cluster(accessConfig={"authenticationMode": "CONFIG_MAP"})
    cloud.until(cloud.cluster_state, "ACTIVE")
    assert (
        code(cloud.eks.create_access_entry, clusterName=CLUSTER, principalArn=ENTRY)
        == "InvalidRequestException"
    )


def test_tags_of_a_cluster_change(cloud: Infrastructure) -> None:
    arn = cloud.create_cluster(tags={"a": "1"})["arn"]
    cloud.eks.tag_resource(resourceArn=arn, tags={"b": "2"})
    cloud.eks.untag_resource(resourceArn=arn, tagKeys=["a"])
    assert cloud.eks.list_tags_for_resource(resourceArn=arn)["tags"] == {"b": "2"}


def test_the_versions_on_offer_are_listed_with_the_default(
    cloud: Infrastructure,
) -> None:
    versions = cloud.eks.describe_cluster_versions()["clusterVersions"]
    assert [each["clusterVersion"] for each in versions] == [
        "1.36",
        "1.35",
        "1.34",
        "1.33",
    ]
    assert [each["clusterVersion"] for each in versions if each["defaultVersion"]] == [
        "1.36"
    ]


def test_the_creator_has_an_access_entry_and_others_can_get_one(
    cloud: Infrastructure,
) -> None:
    cloud.ready_cluster()
    creator = cloud.aws.credential.principal
    assert (
        code(cloud.eks.create_access_entry, clusterName=CLUSTER, principalArn=creator)
        == "ResourceInUseException"
    )
    unknown = code(
        cloud.eks.create_access_entry, clusterName=CLUSTER, principalArn=ENTRY
    )
    assert unknown == "InvalidParameterException"
    entry = cloud.role("other", "ec2.amazonaws.com")
    cloud.eks.create_access_entry(
        clusterName=CLUSTER, principalArn=entry, tags={"a": "1"}
    )
    policy = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
    who = {"clusterName": CLUSTER, "principalArn": entry}
    cloud.eks.associate_access_policy(
        **who, policyArn=policy, accessScope={"type": "cluster"}
    )
    assert cloud.eks.describe_access_entry(**who)["accessEntry"]["tags"] == {"a": "1"}
    assert [
        each["policyArn"]
        for each in cloud.eks.list_associated_access_policies(**who)[
            "associatedAccessPolicies"
        ]
    ] == [policy]
    assert cloud.eks.list_access_entries(clusterName=CLUSTER)[
        "accessEntries"
    ] == sorted([creator, entry])
    cloud.eks.delete_access_entry(**who)
    assert code(cloud.eks.describe_access_entry, **who) == "ResourceNotFoundException"


def test_the_creator_that_is_a_session_is_let_in_as_its_role() -> None:
    with FakeAws(role="provisioner") as aws:
        cloud = Infrastructure(aws).build(way_out=False).ready_cluster()
        entries = cloud.eks.list_access_entries(clusterName=CLUSTER)["accessEntries"]
        assert entries == [f"arn:aws:iam::{aws.account.number}:role/provisioner"]
        assert (
            code(
                cloud.eks.create_access_entry,
                clusterName=CLUSTER,
                principalArn=aws.credential.principal,
            )
            == "InvalidParameterException"
        )


def test_an_association_is_found_by_namespace_and_service_account(
    cloud: Infrastructure,
) -> None:
    cloud.ready_cluster()
    what = {
        "clusterName": CLUSTER,
        "namespace": "kube-system",
        "serviceAccount": "cluster-autoscaler",
    }
    made = cloud.eks.create_pod_identity_association(
        **what, roleArn=cloud.roles["pods"]
    )["association"]
    assert (
        code(
            cloud.eks.create_pod_identity_association,
            **what,
            roleArn=cloud.roles["pods"],
        )
        == "ResourceInUseException"
    )
    assert [
        each["associationId"]
        for each in cloud.eks.list_pod_identity_associations(**what)["associations"]
    ] == [made["associationId"]]
    assert (
        cloud.eks.list_pod_identity_associations(**{**what, "serviceAccount": "other"})[
            "associations"
        ]
        == []
    )
    gone = {"clusterName": CLUSTER, "associationId": made["associationId"]}
    other = cloud.role("other", "pods.eks.amazonaws.com")
    cloud.eks.update_pod_identity_association(**gone, roleArn=other)
    assert (
        cloud.eks.describe_pod_identity_association(**gone)["association"]["roleArn"]
        == other
    )
    cloud.eks.delete_pod_identity_association(**gone)
    assert (
        code(cloud.eks.describe_pod_identity_association, **gone)
        == "ResourceNotFoundException"
    )


def test_a_role_that_does_not_trust_pods_is_not_associated(
    cloud: Infrastructure,
) -> None:
    cloud.ready_cluster()
    what = {"clusterName": CLUSTER, "namespace": "kube-system", "serviceAccount": "a"}
    assert (
        code(
            cloud.eks.create_pod_identity_association,
            **what,
            roleArn=cloud.roles["node"],
        )
        == "InvalidParameterException"
    )
    assert "pods" not in trust("ec2.amazonaws.com")


def test_nothing_is_added_to_a_cluster_that_is_creating(cloud: Infrastructure) -> None:
    cloud.create_cluster()
    assert (
        code(cloud.eks.create_addon, clusterName=CLUSTER, addonName="vpc-cni")
        == "InvalidRequestException"
    )


def test_a_missing_object_is_not_found(cloud: Infrastructure) -> None:
    assert cloud.cluster_state() == "gone"
    assert (
        code(cloud.eks.list_addons, clusterName=CLUSTER) == "ResourceNotFoundException"
    )
    cloud.ready_cluster()
    assert cloud.group_state() == "gone"
    assert cloud.add_on_state("coredns") == "gone"
