"""No test of clouds sends a request that AWS does not know: such a test fails (`tests/activities/clouds/requests.py`)."""

from typing import Any

import pytest

from testbed.clouds.aws.fake import FakeAws
from tests.activities.clouds.eks.world import World
from tests.activities.clouds.requests import WrongRequest

# Of each kind of mistake one: no list, no such parameter, one that is missing, no choice of the field, no choice deep inside.
Wrong = tuple[str, str, str, dict[str, Any]]
WRONG: list[Wrong] = [
    ("ec2", "describe_vpcs", "VpcIds", {"VpcIds": "vpc-1"}),
    ("ec2", "describe_vpcs", "Vpcs", {"Vpcs": ["vpc-1"]}),
    ("eks", "describe_nodegroup", "nodegroupName", {"clusterName": "prod"}),
    ("efs", "create_file_system", "elastik", {"CreationToken": "t", "ThroughputMode": "elastik"}),
    ("ec2", "describe_instance_types", "none", {"InstanceTypes": ["none"]}),
    (
        "eks",
        "update_nodegroup_config",
        "NoSchedule",
        {"clusterName": "c", "nodegroupName": "g", "taints": {"addOrUpdateTaints": [{"key": "k", "effect": "NoSchedule"}]}},
    ),
]


@pytest.mark.parametrize("case", WRONG, ids=[f"{row[1]} {row[2]}" for row in WRONG])
def test_prv_10_1_what_the_service_does_not_know_is_not_sent(aws: FakeAws, world: World, case: Wrong) -> None:
    service, operation, said, parameters = case
    before = len(aws.ledger())
    with pytest.raises(WrongRequest, match=said):
        world.provider.clients.read(service, operation, **parameters)
    assert len(aws.ledger()) == before
