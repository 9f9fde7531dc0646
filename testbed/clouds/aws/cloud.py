"""The state of a fake account: moto's backends, what EKS has, and how long each object still is in a state that passes."""

import io
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from moto.backends import get_backend
from moto.server import create_backend_app

from testbed.clouds.aws.account import Account
from testbed.clouds.aws.eks_store import EksStore
from testbed.clouds.aws.faults import Fault, Kind, Script
from testbed.clouds.aws.wire import Answer, Request, understood

MANAGED_POLICIES = (
    "AmazonEKSClusterPolicy",
    "AmazonEKSWorkerNodePolicy",
    "AmazonEKS_CNI_Policy",
    "AmazonEC2ContainerRegistryReadOnly",
    "service-role/AmazonEFSCSIDriverPolicy",
)
"""The policies of AWS that the roles of an EKS cluster attach."""
BACKENDS = ("ec2", "iam", "efs", "elb", "elbv2", "autoscaling", "sts", "resourcegroupstaggingapi")
# moto answers for the account that this header names.
_ACCOUNT_HEADER = "HTTP_X_MOTO_ACCOUNT_ID"
# Read when a backend is made: all managed policies, and none of the thousands of machine images.
_LOADING = {"MOTO_IAM_LOAD_MANAGED_POLICIES": "true", "MOTO_EC2_LOAD_DEFAULT_AMIS": "false"}
# moto's own dispatcher lists the folder of its modules for every request that it looks up.
_application = cache(create_backend_app)


class PoliciesMissing(Exception):
    """moto was started without the managed policies of AWS."""


@dataclass(frozen=True)
class Delays:
    """How many reads show an object in a state that passes, before it is in the next one. 0 makes everything immediate."""

    create: int = 2
    delete: int = 2
    update: int = 1


@dataclass
class Steps:
    """How many reads are left until something has happened, and what happens then."""

    reads: int
    then: Callable[[], None]

    def read(self) -> bool:
        """Count a read; True once it has happened."""
        if self.reads > 0:
            self.reads -= 1
            return False
        self.then()
        return True


@dataclass
class Cloud:
    """The account, its state and the faults that are planned for it."""

    account: Account
    delays: Delays
    script: Script
    unsupported_zones: frozenset[str] = frozenset()
    eks: EksStore = field(default_factory=EksStore)
    reservations: dict[str, dict[str, Any]] = field(default_factory=dict)
    steps: dict[str, Steps] = field(default_factory=dict)
    """By the id of the object in EC2 or EFS."""
    hidden: dict[str, int] = field(default_factory=dict)
    """For how many reads an object is not found, by its id."""
    vanishing: dict[str, int] = field(default_factory=dict)
    """After how many reads an object is gone, by its id."""
    kinds: dict[str, str] = field(default_factory=dict)
    """Which operation made what is hidden or vanishes."""
    on_ready: Callable[[str], tuple[str, str] | None] | None = None
    """Gives the endpoint and the CA certificate in Base64 of a cluster that becomes ready; None for one of the fake's own."""
    endpoints: dict[str, tuple[str, str]] = field(default_factory=dict)
    denied: dict[str, str] = field(default_factory=dict)
    """What IAM decides about actions such as `ec2:CreateVpc`; ` without <key>` where that depends on a key of the context."""
    quotas: dict[str, float] = field(default_factory=dict)
    """Limits of the account by the code of the quota. Others are those of AWS, which are far away."""

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
        """Raise PoliciesMissing where a role of EKS could attach nothing."""
        begin = f"arn:{self.account.partition}:iam::aws:policy/"
        if missing := [name for name in MANAGED_POLICIES if begin + name not in self.iam.managed_policies]:
            hint = "set MOTO_IAM_LOAD_MANAGED_POLICIES=true before the account is first used"
            raise PoliciesMissing(f"moto has not loaded the managed policies {', '.join(missing)}: {hint}")

    def clear(self) -> None:
        """Forget everything that moto has of the account."""
        for name in BACKENDS:
            get_backend(name).pop(self.account.number, None)

    def empty(self) -> None:
        """Forget what was made in the account. The policies of AWS stay: reading all of them again takes a second."""
        policies = self.iam.aws_managed_policies
        self.clear()
        with _loading({**_LOADING, "MOTO_IAM_LOAD_MANAGED_POLICIES": "false"}):
            iam = get_backend("iam")[self.account.number][self.account.partition]
        iam.aws_managed_policies = policies
        iam.managed_policies.update({each.arn: each for each in policies})
        for each in policies:
            each.attachment_count = 0

    def take(self, kind: Kind, request: Request, accept: Callable[[Fault], bool] = lambda _: True) -> Fault | None:
        """Use a fault of this kind that matches a request and that `accept` accepts, if there is one."""
        return self.script.take(kind, request.service, request.operation, request.parameters, accept)

    def after_reads(self, key: str, reads: int, then: Callable[[], None]) -> None:
        """Let something happen after so many reads of an object; at once where it is none."""
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

    def forward(self, request: Request) -> Answer:
        """Let moto answer a request."""
        environ = {**request.raw.environ, "wsgi.input": io.BytesIO(request.raw.body), _ACCOUNT_HEADER: self.account.number}
        status, headers = "", dict[str, str]()

        def start(given: str, pairs: list[tuple[str, str]], _error: object = None) -> None:
            nonlocal status
            status = given
            headers.update(pairs)

        with _loading(_LOADING):
            body = b"".join(_application(request.service)(environ, start))
        return understood(request, int(status.split(maxsplit=1)[0]), {key.lower(): value for key, value in headers.items()}, body)


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


def tags_of(request: Request) -> Mapping[str, str]:
    """Give the tags that a request creates an object with, in whichever of the three forms its service has."""
    given = request.parameters
    pairs = [pair for each in given.get("TagSpecifications", []) for pair in each.get("Tags", [])] or given.get("Tags", [])
    return {pair["Key"]: pair.get("Value", "") for pair in pairs} or given.get("tags", {})
