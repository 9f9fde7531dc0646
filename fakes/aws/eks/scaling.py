"""The Auto Scaling groups of node groups: their sizes, failed launches, and leftovers."""

from collections.abc import Iterator, Mapping
from typing import Any

from fakes.aws.cloud import AwsCloud
from fakes.aws.eks.parts import Handler
from fakes.aws.eks_store import BORN, CREATE_FAILED, EksObject
from fakes.aws.services.network import subnet
from fakes.aws.wire import AwsRequest


def group_name(group: EksObject) -> str:
    """Return the name of the Auto Scaling group of a node group."""
    return f"eks-{group.body['nodegroupName']}-{group.body['nodegroupArn'].rpartition('/')[2]}"


def _groups(cloud: AwsCloud) -> Iterator[EksObject]:
    for cluster in cloud.eks.clusters.values():
        yield from (
            each for each in cluster.node_groups.values() if "resources" in each.body
        )
    yield from cloud.eks.left.values()


def leave(cloud: AwsCloud, cluster: str, group: str) -> list[str]:
    """Leave the objects that EKS created for a node group.

    It is the state after an interrupted deletion. Return the name of its Auto Scaling
    group, the id of its launch template, and the name of its instance profile.
    """
    item = cloud.eks.clusters[cluster].node_groups[group]
    left = EksObject(dict(item.body))
    cloud.eks.left[group_name(left)] = left
    name = f"eks-{cloud.eks.digits()}"
    tags = {"eks:cluster-name": cluster, "eks:nodegroup-name": group}
    template = cloud.ec2.create_launch_template(name, "", {}, {"launch-template": tags})
    role = str(item.body["nodeRole"]).rpartition("/")[2]
    cloud.iam.create_instance_profile(name=name, path="/", role_names=[role])
    return [group_name(left), str(template.id), name]


def _is_asked_for(tags: Mapping[str, str], request: AwsRequest) -> bool:
    """Return whether a group with these tags passes the filters of a request."""
    wanted = {
        each["Name"].removeprefix("tag:"): each["Values"]
        for each in request.parameters.get("Filters") or ()
    }
    return all(tags.get(key) in values for key, values in wanted.items())


def _describe(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    wanted = request.parameters.get("AutoScalingGroupNames")
    found = []
    for group in _groups(cloud):
        if wanted and group_name(group) not in wanted:
            continue
        body, scaling = group.body, group.body["scalingConfig"]
        cluster = body["clusterName"]
        tags = {
            f"k8s.io/cluster-autoscaler/{cluster}": "owned",
            f"kubernetes.io/cluster/{cluster}": "owned",
            "eks:cluster-name": cluster,
            "eks:nodegroup-name": body["nodegroupName"],
        }
        if not _is_asked_for(tags, request):
            continue
        zones = sorted(
            {
                within.availability_zone
                for each in body["subnets"]
                if (within := subnet(cloud, each))
            }
        )
        instances = [
            {
                "InstanceId": interface.replace("eni-", "i-"),
                "AvailabilityZone": zones[0] if zones else "",
                "LifecycleState": "InService",
                "HealthStatus": "Healthy",
                "ProtectedFromScaleIn": False,
            }
            for interface in group.interfaces
        ]
        found.append(
            {
                "AutoScalingGroupName": group_name(group),
                "MinSize": scaling["minSize"],
                "MaxSize": scaling["maxSize"],
                "DesiredCapacity": scaling["desiredSize"],
                "DefaultCooldown": 300,
                "AvailabilityZones": zones,
                "HealthCheckType": "EC2",
                "CreatedTime": BORN,
                "VPCZoneIdentifier": ",".join(body["subnets"]),
                "Instances": instances,
                "Tags": [
                    {
                        "ResourceId": group_name(group),
                        "ResourceType": "auto-scaling-group",
                        "Key": key,
                        "Value": value,
                        "PropagateAtLaunch": True,
                    }
                    for key, value in tags.items()
                ],
            }
        )
    return {"AutoScalingGroups": found}


def _activities(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    wanted = request.text("AutoScalingGroupName")
    activities = []
    for group in _groups(cloud):
        if group.status != CREATE_FAILED or wanted not in ("", group_name(group)):
            continue
        message = group.body["health"]["issues"][0]["message"]
        activities.append(
            {
                "ActivityId": group_name(group),
                "AutoScalingGroupName": group_name(group),
                "Cause": "the group has fewer instances than it wants",
                "StartTime": BORN,
                "EndTime": BORN,
                "StatusCode": "Failed",
                "StatusMessage": message,
                "Progress": 100,
            }
        )
    return {"Activities": activities}


HANDLERS: Mapping[str, Handler] = {
    "DescribeAutoScalingGroups": _describe,
    "DescribeScalingActivities": _activities,
}
