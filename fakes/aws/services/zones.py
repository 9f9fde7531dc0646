"""EC2: the zones of a region with their state, kind and opt-in.

moto has neither opt-in nor Local Zones.
"""

from collections.abc import Callable, Mapping
from typing import Any

from fakes.aws.cloud import AwsCloud
from fakes.aws.wire import AwsRequest

_FIELDS = {
    "opt-in-status": "OptInStatus",
    "region-name": "RegionName",
    "state": "State",
    "zone-id": "ZoneId",
    "zone-name": "ZoneName",
    "zone-type": "ZoneType",
}


def _describe(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    """Return zones like EC2: without AllAvailabilityZones, only enabled ones."""
    given = request.parameters
    wanted = {
        _FIELDS[each["Name"]]: each["Values"] for each in given.get("Filters", ())
    }
    shown = [
        zone
        for zone in _zones(cloud)
        if given.get("AllAvailabilityZones") or zone["OptInStatus"] != "not-opted-in"
    ]
    return {
        "AvailabilityZones": [
            zone
            for zone in shown
            if all(zone[field] in values for field, values in wanted.items())
        ]
    }


def _zones(cloud: AwsCloud) -> list[dict[str, Any]]:
    found = [
        _zone(
            cloud, each.name, each.zone_id, "availability-zone", "opt-in-not-required"
        )
        for each in cloud.ec2.describe_availability_zones()
    ]
    # A Local Zone in which the account takes part, and one in which it does not.
    region = cloud.account.region
    for city, status in (("bos", "opted-in"), ("chi", "not-opted-in")):
        name = f"{region}-{city}-1a"
        found.append(_zone(cloud, name, f"{city}1-az1", "local-zone", status))
    return found


def _zone(
    cloud: AwsCloud, name: str, identity: str, kind: str, status: str
) -> dict[str, Any]:
    return {
        "ZoneName": name,
        "ZoneId": identity,
        "ZoneType": kind,
        "OptInStatus": status,
        "State": cloud.zone_states.get(name, "available"),
        "RegionName": cloud.account.region,
        "GroupName": name[:-1] if kind == "local-zone" else cloud.account.region,
        "NetworkBorderGroup": cloud.account.region,
        "Messages": [],
    }


OWN: Mapping[str, Callable[[AwsCloud, AwsRequest], Mapping[str, Any]]] = {
    "DescribeAvailabilityZones": _describe
}
