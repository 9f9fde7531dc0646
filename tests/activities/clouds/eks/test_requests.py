"""Every request that a life of a cluster sends to AWS, by botocore's own model of each service: not only those that create.

The check of parameters that botocore makes itself is on, but it passes over texts that are none of the choices of their field.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore import xform_name
from botocore.model import OperationModel
from botocore.validate import ParamValidator

from activities.clouds import eks
from activities.clouds.eks.clients import AwsClients
from api_types.errors import InvalidInput
from testbed.clouds.aws.fake import FakeAws
from testbed.clouds.aws.faults import Leftover as Left
from tests.activities.clouds.builders import an_eks_pool
from tests.activities.clouds.eks.test_deletion import swept
from tests.activities.clouds.eks.world import World
from tests.activities.clouds.test_eks_calls import CALLS, not_choices

# Calls of these methods name the service and the operation.
METHODS = ("read", "listed", "create", "update", "delete")
# Of what a life without accidents does not come to; each is sent to the fake by the test that is named.
ELSEWHERE = {
    "delete_instance_profile": "eks/test_deletion.py: prv_9_3, a profile that may not be deleted",
}


class Requests:
    """All requests of clients: what botocore's model says against them, and which operations there were."""

    def __init__(self, clients: AwsClients) -> None:
        self.problems: list[str] = []
        self.operations: set[str] = set()
        clients._session._session.register("provide-client-params", self._seen)

    def _seen(self, params: dict[str, Any], model: OperationModel, **_: Any) -> None:
        self.operations.add(xform_name(model.name))
        shape = model.input_shape
        if shape is None:
            return
        report = ParamValidator().validate(params, shape).generate_report()
        choices = [f"{text} is no choice" for text in not_choices(params, shape)]
        self.problems += [f"{model.name}: {problem}" for problem in (report, *choices) if problem]


def named() -> Iterator[str]:
    """The operations that the code names, in calls of clients and in objects."""
    yield from (call.operation for _, call in CALLS)
    for file in Path(eks.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS):
                continue
            texts = [each.value for each in node.args if isinstance(each, ast.Constant)]
            if len(texts) > 1 and texts[0] in SERVICES:
                yield str(texts[1])


SERVICES = ("ec2", "eks", "iam", "efs", "sts", "elb", "elbv2", "autoscaling", "service-quotas")


async def test_prv_10_1_every_request_of_a_life_is_one_of_the_models_of_botocore(aws: FakeAws, world: World) -> None:
    requests = Requests(world.provider.clients)
    pools = an_eks_pool("gpu", nodeCount=1, maxNodeCount=2), an_eks_pool("efa", className="p5en", fabric={"type": "EFA"})
    await world.create_all(world.plan(*pools).objects)
    changed = world.plan(an_eks_pool("gpu", nodeCount=1, maxNodeCount=4), pools[1])
    await world.create_all(changed.objects)
    cluster = world.provider.cloud_cluster(world.account)
    for each in Left:
        aws.leave(cluster, each)
    world.provider.audit(world.audit())
    await world.delete_all([each for each in changed.objects if not each.key.startswith("net/")])
    swept(world)
    assert requests.problems == []
    missing = sorted(set(named()) - requests.operations - ELSEWHERE.keys())
    assert missing == []


def test_prv_10_1_what_is_no_parameter_is_refused_before_it_is_sent(aws: FakeAws, world: World) -> None:
    before = len(aws.ledger())
    for parameters in ({"VpcIds": "vpc-1"}, {"Vpcs": ["vpc-1"]}):
        with pytest.raises(InvalidInput, match="VpcId|Vpcs"):
            world.provider.clients.read("ec2", "describe_vpcs", **parameters)
    assert len(aws.ledger()) == before


def test_a_text_that_is_no_choice_would_be_found(world: World) -> None:
    requests = Requests(world.provider.clients)
    world.provider.clients.read("ec2", "describe_availability_zones", Filters=[])
    assert requests.problems == []
    with pytest.raises(Exception, match="."):
        world.provider.clients.update("ec2", "modify_vpc_attribute", VpcId="vpc-1", EnableDnsSupport={"Value": "yes"})
    assert requests.problems
