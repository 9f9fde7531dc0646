"""Whether a replica may belong to a deployment, judged by its name."""

import pytest

from api_types.names import may_be_replica_of, replica_name


@pytest.mark.parametrize(
    "deployment", ["m", "qwen-3", "a.b", "very-long-" * 12, "x" * 29 + "-" + "y" * 40]
)
def test_a_replica_may_belong_to_its_deployment_and_not_to_another_one(
    deployment: str,
) -> None:
    replica = replica_name("ml", deployment, "eu", 3)
    assert may_be_replica_of(replica, deployment)
    assert not may_be_replica_of(replica, "other")
