"""Tests of clouds fail if they send an invalid request to AWS.

See `tests/activities/clouds/requests.py`.
"""

from typing import Any

import pytest

from fakes.aws.fake import FakeAws
from tests.activities.clouds.eks.world import World
from tests.activities.clouds.requests import WrongRequest

# One example for each kind of mistake: not a list, an unknown parameter, a missing one,
# an invalid choice, an invalid choice deep inside.
Wrong = tuple[str, str, str, dict[str, Any]]
WRONG: list[Wrong] = [
    ("ec2", "describe_vpcs", "VpcIds", {"VpcIds": "vpc-1"}),
    ("ec2", "describe_vpcs", "Vpcs", {"Vpcs": ["vpc-1"]}),
    ("eks", "describe_nodegroup", "nodegroupName", {"clusterName": "prod"}),
    (
        "efs",
        "create_file_system",
        "elastik",
        {"CreationToken": "t", "ThroughputMode": "elastik"},
    ),
    ("ec2", "describe_instance_types", "none", {"InstanceTypes": ["none"]}),
    (
        "eks",
        "update_nodegroup_config",
        "NoSchedule",
        {
            "clusterName": "c",
            "nodegroupName": "g",
            "taints": {"addOrUpdateTaints": [{"key": "k", "effect": "NoSchedule"}]},
        },
    ),
]


@pytest.mark.parametrize("case", WRONG, ids=[f"{row[1]} {row[2]}" for row in WRONG])
def test_invalid_requests_are_not_sent(aws: FakeAws, world: World, case: Wrong) -> None:
    service, operation, said, parameters = case
    before = len(aws.ledger())
    with pytest.raises(WrongRequest, match=said):
        world.provider.clients.read(service, operation, **parameters)
    assert len(aws.ledger()) == before
