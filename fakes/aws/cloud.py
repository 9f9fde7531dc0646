"""The state of a fake account: moto's backends, EKS, and transitional states."""

import io
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from moto.backends import get_backend
from moto.core import responses
from moto.server import create_backend_app

from fakes.aws.account import Account
from fakes.aws.eks_store import EksStore
from fakes.aws.faults import AwsFault, AwsFaultScript, FaultKind
from fakes.aws.wire import AwsRequest, AwsResponse, understood

MANAGED_POLICIES = (
    "AmazonEKSClusterPolicy",
    "AmazonEKSWorkerNodePolicy",
    "AmazonEKS_CNI_Policy",
    "AmazonEC2ContainerRegistryReadOnly",
    "service-role/AmazonEFSCSIDriverPolicy",
)
"""The AWS policies that the roles of an EKS cluster attach."""
BACKENDS = (
    "ec2",
    "iam",
    "efs",
    "elb",
    "elbv2",
    "autoscaling",
    "sts",
    "resourcegroupstaggingapi",
)
# moto answers for the account in this header.
_ACCOUNT_HEADER = "HTTP_X_MOTO_ACCOUNT_ID"
# Settings that moto reads when a backend is created: all managed policies, and none of
# the thousands of machine images.
_LOADING = {
    "MOTO_IAM_LOAD_MANAGED_POLICIES": "true",
    "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
}
# moto's own dispatcher lists the folder of its modules for every request.
_application = cache(create_backend_app)
# moto inspects all members of a class for every request, a tenth of the time of a call.
responses.method_names_from_class = cache(responses.method_names_from_class)


class PoliciesMissing(Exception):
    """moto was started without the managed policies of AWS."""


@dataclass(frozen=True)
class Delays:
    """The number of reads that show an object in a transitional state.

    0 makes everything immediate.
    """

    create: int = 2
    delete: int = 2
    update: int = 1


@dataclass
class Steps:
    """A number of remaining reads, and the effect after them."""

    reads: int
    then: Callable[[], None]

    def read(self) -> bool:
        """Count a read. Return whether the effect has happened."""
        if self.reads > 0:
            self.reads -= 1
            return False
        self.then()
        return True


@dataclass
class AwsCloud:
    """The account, its state, and its planned faults."""

    account: Account
    delays: Delays
    script: AwsFaultScript
    unsupported_zones: frozenset[str] = frozenset()
    zone_states: dict[str, str] = field(default_factory=dict)
    """States of zones that are not available, by name."""
    eks: EksStore = field(default_factory=EksStore)
    reservations: dict[str, dict[str, Any]] = field(default_factory=dict)
    steps: dict[str, Steps] = field(default_factory=dict)
    """Transitional states by the id of the object in EC2 or EFS."""
    hidden: dict[str, int] = field(default_factory=dict)
    """The reads during which an object is not found, by its id."""
    vanishing: dict[str, int] = field(default_factory=dict)
    """The reads after which an object is gone, by its id."""
    kinds: dict[str, str] = field(default_factory=dict)
    """The operation that created a hidden or vanishing object."""
    on_ready: Callable[[str], tuple[str, str] | None] | None = None
    """Returns the endpoint and CA certificate (Base64) for a cluster that becomes
    ready, or None for made-up ones.
    """
    endpoints: dict[str, tuple[str, str]] = field(default_factory=dict)
    stripped: dict[str, Any] = field(default_factory=dict)
    """The tags that a fault has removed, by the id of the object."""
    denied: dict[str, str] = field(default_factory=dict)
    """The decisions of IAM about actions such as `ec2:CreateVpc`.

    ` without <key>` marks one that depends on a key of the context.
    """
    not_offered: dict[str, frozenset[str]] = field(default_factory=dict)
    """The zones that do not have a type of machine."""
    quotas: dict[str, float] = field(default_factory=dict)
    """Limits of the account by quota code.

    Other quotas have AWS's limits, which are far away.
    """

    @property
    def ec2(self) -> Any:
        """Moto's EC2 of the region."""
        return _backend("ec2", self.account.number, self.account.region)

    @property
    def iam(self) -> Any:
        """Moto's IAM of the partition."""
        return _backend("iam", self.account.number, self.account.partition)

    @property
    def efs(self) -> Any:
        """Moto's EFS of the region."""
        return _backend("efs", self.account.number, self.account.region)

    @property
    def elb(self) -> Any:
        """Moto's classic load balancers of the region."""
        return _backend("elb", self.account.number, self.account.region)

    @property
    def elbv2(self) -> Any:
        """Moto's other load balancers of the region."""
        return _backend("elbv2", self.account.number, self.account.region)

    def check_policies(self) -> None:
        """Raise PoliciesMissing if a role of EKS could not attach its policies."""
        begin = f"arn:{self.account.partition}:iam::aws:policy/"
        if missing := [
            name
            for name in MANAGED_POLICIES
            if begin + name not in self.iam.managed_policies
        ]:
            hint = "set MOTO_IAM_LOAD_MANAGED_POLICIES=true before the account is first used"
            raise PoliciesMissing(
                f"moto has not loaded the managed policies {', '.join(missing)}: {hint}"
            )

    def clear(self) -> None:
        """Forget all of moto's objects of the account."""
        for name in BACKENDS:
            get_backend(name).pop(self.account.number, None)

    def empty(self) -> None:
        """Forget all objects of the account except the managed policies.

        Reading those takes a second.
        """
        policies = self.iam.aws_managed_policies
        self.clear()
        with _loading({**_LOADING, "MOTO_IAM_LOAD_MANAGED_POLICIES": "false"}):
            iam = get_backend("iam")[self.account.number][self.account.partition]
        iam.aws_managed_policies = policies
        iam.managed_policies.update({each.arn: each for each in policies})
        for each in policies:
            each.attachment_count = 0

    def take(
        self,
        kind: FaultKind,
        request: AwsRequest,
        accept: Callable[[AwsFault], bool] = lambda _: True,
    ) -> AwsFault | None:
        """Use a matching fault of this kind that `accept` accepts, if there is one."""
        return self.script.take(
            kind, request.service, request.operation, request.parameters, accept
        )

    def after_reads(self, key: str, reads: int, then: Callable[[], None]) -> None:
        """Schedule an effect after some reads of an object, or at once for 0."""
        self.steps.pop(key, None)
        if reads <= 0:
            then()
            return
        self.steps[key] = Steps(reads, then)

    def count_reads(self, keys: Iterator[str] | list[str]) -> None:
        """Count a read of each of these objects."""
        for key in list(keys):
            step = self.steps.get(key)
            if step is not None and step.read():
                self.steps.pop(key, None)

    def forward(self, request: AwsRequest) -> AwsResponse:
        """Let moto answer a request."""
        environ = {
            **request.raw.environ,
            "wsgi.input": io.BytesIO(request.raw.body),
            _ACCOUNT_HEADER: self.account.number,
        }
        status, headers = "", dict[str, str]()

        def start(
            given: str, pairs: list[tuple[str, str]], _error: object = None
        ) -> None:
            nonlocal status
            status = given
            headers.update(pairs)

        with _loading(_LOADING):
            body = b"".join(_application(request.service)(environ, start))
        return understood(
            request,
            int(status.split(maxsplit=1)[0]),
            {key.lower(): value for key, value in headers.items()},
            body,
        )


def _backend(service: str, account: str, region: str) -> Any:
    with _loading(_LOADING):
        return get_backend(service)[account][region]


@contextmanager
def _loading(settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def tags_of(request: AwsRequest) -> Mapping[str, str]:
    """Return the tags of a create request, which has one of three forms."""
    given = request.parameters
    pairs = [
        pair
        for each in given.get("TagSpecifications", [])
        for pair in each.get("Tags", [])
    ] or given.get("Tags", [])
    return {pair["Key"]: pair.get("Value", "") for pair in pairs} or given.get(
        "tags", {}
    )
