"""The launch of the nodes of a node group, and the reasons why it fails."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fakes.aws.cloud import AwsCloud
from fakes.aws.eks.machines import not_offered, out_of_stock, unsupported
from fakes.aws.eks.parts import issue
from fakes.aws.eks.scaling import group_name
from fakes.aws.eks_store import EksObject
from fakes.aws.faults import AwsFault, FaultKind
from fakes.aws.services.network import has_way_out, subnet
from fakes.aws.wire import AwsRequest

CAPACITY_BLOCK = "CAPACITY_BLOCK"
DO_NOT_JOIN = "Instances failed to join the kubernetes cluster"


@dataclass(frozen=True)
class LaunchProblem:
    """The health of a group whose nodes did not all start.

    `subnets` are those in which nodes run nevertheless.
    """

    health: dict[str, Any]
    subnets: list[str] = field(default_factory=list)


def launch_problem(
    cloud: AwsCloud,
    request: AwsRequest,
    group: EksObject,
    data: Mapping[str, Any],
    zones: set[str],
) -> LaunchProblem | None:
    """Return why the nodes of a group do not start, or None."""
    fault = cloud.take(FaultKind.FAIL, request)
    if fault is not None:
        return LaunchProblem(
            issue(
                fault.code or "InternalFailure",
                fault.message or "the node group could not be created",
            )
        )

    def of_zone(each: AwsFault) -> bool:
        # One zone without machines fails the group in all its zones.
        return not each.zone or each.zone in zones

    if group.body["scalingConfig"]["desiredSize"] == 0:
        return None
    stock = cloud.take(FaultKind.STOCK_OUT, request, of_zone)
    reservation = _reservation(cloud, group, data)
    machine = (
        group.body.get("instanceTypes") or [data.get("InstanceType", "t3.medium")]
    )[0]
    missing = not_offered(cloud, machine, zones) if data else set()
    if stock is not None or reservation is not None or missing:
        out = {stock.zone} if stock is not None and stock.zone else set(zones)
        out = set() if missing and stock is None else out
        text = (
            unsupported(cloud, machine, min(missing))
            if missing
            else reservation or out_of_stock(machine, out, zones)
        )
        prefix = "Unsupported - " if missing else ""
        text = (
            f"Could not launch On-Demand Instances. {prefix}{text} "
            "Launching EC2 instance failed."
        )
        running = [
            each
            for each in group.body["subnets"]
            if _zone_of(cloud, each) not in out | missing
        ]
        return LaunchProblem(
            issue("AsgInstanceLaunchFailures", text, [group_name(group)]),
            [] if reservation else running,
        )
    networks = data.get("NetworkInterfaces", [])
    if networks and any(
        cloud.eks.clusters[group.body["clusterName"]].group
        not in each.get("Groups", [])
        for each in networks
    ):
        return LaunchProblem(issue("NodeCreationFailure", DO_NOT_JOIN))
    if not all(has_way_out(cloud, each) for each in group.body["subnets"]):
        return LaunchProblem(issue("NodeCreationFailure", DO_NOT_JOIN))
    return None


def _reservation(
    cloud: AwsCloud, group: EksObject, data: Mapping[str, Any]
) -> str | None:
    """Return why the capacity block of a group has no machines for it, or None."""
    if group.body["capacityType"] != CAPACITY_BLOCK:
        return None
    target = (
        data.get("CapacityReservationSpecification", {})
        .get("CapacityReservationTarget", {})
        .get("CapacityReservationId", "")
    )
    found = cloud.reservations.get(target)
    if found is None:
        return f"The capacity reservation '{target}' does not exist"
    wanted = group.body["scalingConfig"]["desiredSize"]
    if found["State"] != "active" or found["AvailableInstanceCount"] < wanted:
        has = f"{found['State']} with {found['AvailableInstanceCount']} machines"
        return (
            f"The capacity reservation {target} is {has} (ReservationCapacityExceeded)"
        )
    return None


def _zone_of(cloud: AwsCloud, subnet_id: str) -> str:
    found = subnet(cloud, subnet_id)
    return str(found.availability_zone) if found else ""
