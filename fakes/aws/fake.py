"""The fake AWS account as a test or a program uses it."""

import importlib
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fakes.aws.account import AccessKey, Account, TrustedRole
from fakes.aws.faults import AwsFault, AwsFaultScript, VpcLeftover
from fakes.aws.ledger import AwsCall
from fakes.aws.signatures import AwsIdentity, verify_token

if TYPE_CHECKING:
    from fakes.aws.cloud import AwsCloud
    from fakes.aws.front import AwsFront

HOST = "127.0.0.1"
FIRST_ACCOUNT = 100_000_000_000
_NUMBERS = itertools.count(FIRST_ACCOUNT + 1)
_SECONDS_TO_NOTICE_ITS_END = 0.05
_REVIEW = "token-review"


class MotoMissing(ImportError):
    """moto or its server is not installed. The message says how to install it."""


class FakeAws:
    """One AWS account, served on a free port while the `with` block runs.

    The account has its objects in one region, and in `more_regions`. Except for
    `remains`, `troubles` and the API, the methods concern the first region.

    Several can be open in one process; each has its own account number. `create_reads`,
    `delete_reads` and `update_reads` are the reads that show an object as being
    created, deleted or updated. That applies to NAT gateways, clusters, node groups,
    add-ons, file systems and mount targets.

    `unsupported_zones` are zones in which EKS and EFS create nothing. `role` makes the
    first credential a session of this role; without it, it belongs to a user.
    `on_cluster_ready` gets the name of a cluster that becomes ACTIVE and returns its
    endpoint and CA certificate (PEM in Base64), or None for made-up ones. It is called
    while the account answers no other call, so it must not call it. With
    `only_reviews`, other processes may only ask for token reviews.
    """

    def __init__(
        self,
        region: str = "us-east-2",
        *,
        port: int = 0,
        create_reads: int = 2,
        delete_reads: int = 2,
        update_reads: int = 1,
        unsupported_zones: Sequence[str] = (),
        faults: Sequence[AwsFault] = (),
        on_cluster_ready: Callable[[str], tuple[str, str] | None] | None = None,
        role: str | None = None,
        only_reviews: bool = False,
        more_regions: Sequence[str] = (),
    ) -> None:
        self.region, self.url = region, ""
        self.account = Account(f"{next(_NUMBERS)}", region)
        self.credential = (
            self.account.user("modelplane")
            if role is None
            else self.account.role_session(role)
        )
        self._delays = {
            "create": create_reads,
            "delete": delete_reads,
            "update": update_reads,
        }
        self._zones, self._port, self._faults, self._on_ready = (
            frozenset(unsupported_zones),
            port,
            tuple(faults),
            on_cluster_ready,
        )
        self._only_reviews = only_reviews
        self._more_regions = tuple(more_regions)
        self._front: AwsFront | None = None
        self._server: Any = None
        self._thread: threading.Thread | None = None
        self._began: set[str] = set()
        # Creating a client takes a second: it reads the whole model of the service.
        self._clients: dict[object, Any] = {}

    def __enter__(self) -> Self:
        """Serve. Raise MotoMissing if moto is not installed."""
        front = _module("front")
        made = self._regions(AwsFaultScript(self._faults))
        self._front = front.AwsFront(made.pop(self.region), made, control=self.control)
        self._began = self._everything()
        self._server = front.make_http_server(HOST, self._port, self._front)
        self.url = f"http://{HOST}:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=(_SECONDS_TO_NOTICE_ITS_END,),
            daemon=True,
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop serving, and forget the account."""
        self.front.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        if self._thread is not None:
            self._thread.join()
        self.cloud.clear()

    @property
    def front(self) -> "AwsFront":
        """The server's application. Raise RuntimeError outside of the `with` block."""
        if self._front is None:
            raise RuntimeError(
                "the fake account is not served: use it in a `with` block"
            )
        return self._front

    @property
    def review_url(self) -> str:
        """The webhook for the token authentication of an API server.

        It is the `tokenReview` of a fleet file, and answers a TokenReview of version
        v1.
        """
        return f"{self.url}/_fake/{_REVIEW}"

    @property
    def cloud(self) -> "AwsCloud":
        """The state of the account, for changes that no call can make."""
        return self.front.cloud

    @property
    def clouds(self) -> list["AwsCloud"]:
        """The states of all regions, the first region first."""
        return [self.cloud, *self.front.others.values()]

    def client(
        self, service: str, credential: AccessKey | None = None, **config: Any
    ) -> Any:
        """Return a boto3 client of a service.

        It retries only if `config` (arguments of botocore's Config) says so.
        """
        who, key = credential or self.credential, (service, credential, repr(config))
        if key not in self._clients:
            boto3, settings = (
                importlib.import_module("boto3"),
                importlib.import_module("botocore.config"),
            )
            session = boto3.session.Session(
                who.access_key,
                who.secret_key,
                who.session_token,
                region_name=self.region,
            )
            given = settings.Config(
                **{"retries": {"total_max_attempts": 1, "mode": "standard"}, **config}
            )
            self._clients[key] = session.client(
                service, endpoint_url=self.url, config=given
            )
        return self._clients[key]

    def ledger(self, operation: str = "", service: str = "") -> list[AwsCall]:
        """Return the calls in order, if given only those of an operation or a service."""
        with self.front.lock:
            found = list(self.front.ledger.entries)
        return [
            each
            for each in found
            if operation in ("", each.operation) and service in ("", each.service)
        ]

    def made(self, operation: str) -> int:
        """Return how often an operation had an effect.

        Refused calls, and calls repeated by their token, have none.
        """
        return sum(each.effective for each in self.ledger(operation))

    def fault(self, *faults: AwsFault) -> None:
        """Plan faults, after the ones that are planned already."""
        with self.front.lock:
            self.cloud.script.add(*faults)

    def faults_left(self) -> list[AwsFault]:
        """Return the faults that are not used up."""
        with self.front.lock:
            return self.cloud.script.left()

    def remains(self) -> list[str]:
        """Return all objects that did not exist at the start, as `service/kind/id`.

        They are sorted. An object that is being deleted still exists.
        """
        with self.front.lock:
            return sorted(self._everything() - self._began)

    def clusters(self) -> set[str]:
        """Return the names of the clusters in all regions."""
        with self.front.lock:
            return {name for each in self.clouds for name in each.eks.clusters}

    def reset(self) -> None:
        """Return to the start: no objects, no calls, no faults.

        Credentials stay, and none is revoked.
        """
        with self.front.lock:
            self.cloud.empty()
            self.account.revoked.clear()
            made = self._regions(AwsFaultScript())
            self.front.cloud, self.front.others = made.pop(self.region), made
            self.front.reset()
            self._began = self._everything()

    def _regions(self, script: AwsFaultScript) -> dict[str, "AwsCloud"]:
        """Return a new state of each region, the first one first."""
        cloud = _module("cloud")
        made = {}
        for region in (self.region, *self._more_regions):
            made[region] = cloud.AwsCloud(
                replace(self.account, region=region)
                if region != self.region
                else self.account,
                cloud.Delays(**self._delays),
                script,
                self._zones,
                on_ready=self._on_ready,
            )
            made[region].check_policies()
        return made

    def _everything(self) -> set[str]:
        return set().union(*map(_module("services.remains").everything, self.clouds))

    def plant_role(
        self,
        name: str,
        *,
        principal: str = "",
        external_id: str = "",
        token: str = "",
    ) -> str:
        """Create a role that a principal may assume, or a token's subject.

        Return its ARN.
        """
        with self.front.lock:
            trusted = TrustedRole(principal, external_id, token)
            self.account.roles[name] = trusted
        return self.account.role_arn(name)

    def limit(self, identity: str, *documents: Mapping[str, Any]) -> None:
        """Limit `user/NAME` or `role/NAME` to policy documents."""
        with self.front.lock:
            self.account.policies[identity] = documents

    def set_clock(self, ahead_seconds: float) -> None:
        """Set the seconds by which AWS's clock is ahead of this machine's."""
        with self.front.lock:
            self.account.ahead_seconds = ahead_seconds

    def revoke(self, credential: AccessKey | None = None) -> None:
        """Refuse all calls with a credential, by default with the account's own."""
        with self.front.lock:
            self.account.revoked.add((credential or self.credential).access_key)

    def restore(self, credential: AccessKey | None = None) -> None:
        """Accept a credential again."""
        with self.front.lock:
            self.account.revoked.discard((credential or self.credential).access_key)

    def plant_reservation(
        self,
        reservation: str,
        zone: str,
        instance_type: str,
        count: int,
        state: str = "active",
    ) -> None:
        """Add a capacity block with so many machines to the account, or change it."""
        with self.front.lock:
            self.cloud.reservations[reservation] = {
                "CapacityReservationId": reservation,
                "AvailabilityZone": zone,
                "InstanceType": instance_type,
                "TotalInstanceCount": count,
                "AvailableInstanceCount": count,
                "State": state,
                "ReservationType": "capacity-block",
                "StartDate": 1_900_000_000 if state == "scheduled" else 1_700_000_000,
                "EndDate": 1_900_086_400,
                "EndDateType": "limited",
                "InstanceMatchCriteria": "targeted",
                "Tenancy": "default",
                "OwnerId": self.account.number,
            }

    def plant_endpoint(
        self, cluster: str, endpoint: str, certificate_authority: str
    ) -> None:
        """Set the address and CA certificate (PEM in Base64) of a cluster.

        They apply at once or when it becomes ACTIVE.
        """
        with self.front.lock:
            self.cloud.endpoints[cluster] = (endpoint, certificate_authority)
            found = self.cloud.eks.clusters.get(cluster)
            if found is not None and "endpoint" in found.body:
                found.body.update(
                    endpoint=endpoint,
                    certificateAuthority={"data": certificate_authority},
                )

    def leave(self, cluster: str, leftover: VpcLeftover) -> str:
        """Create a leftover of a cluster now.

        Return its id or name. Raise KeyError without the cluster.
        """
        with self.front.lock:
            return str(
                _module("services.leaks").leave(
                    self.cloud, self.cloud.eks.clusters[cluster], leftover
                )
            )

    def remove_of_others(self) -> None:
        """Delete the endpoints and load balancers in VPCs that others created."""
        with self.front.lock:
            _module("services.leaks").remove_of_others(self.cloud)

    def restore_tags(self) -> None:
        """Restore the tags that faults have removed, as a person does."""
        with self.front.lock:
            _module("services.people").restore(self.cloud)

    def leave_nodes(self, cluster: str, group: str) -> list[str]:
        """Leave the objects that EKS creates for a node group; see `eks.scaling.leave`.

        Raise KeyError if there is no such group.
        """
        with self.front.lock:
            return list(_module("eks.scaling").leave(self.cloud, cluster, group))

    def control(self, command: str, given: Mapping[str, Any]) -> Any:
        """Run a method of this class for another process.

        `command` is a command of `remote.RemoteAws`; its arguments and its answer are
        JSON. An API server that reviews a token is such a process too. Raise ValueError
        for an unknown command.
        """
        if self._only_reviews and command != _REVIEW:
            raise ValueError(f"no command {command}")
        match command:
            case "about":
                return {
                    "account": self.account.number,
                    "region": self.region,
                    "credential": self.credential.text,
                }
            case "ledger":
                return [each.document() for each in self.ledger()]
            case "faults":
                return [each.document() for each in self.faults_left()]
            case "remains":
                return self.remains()
            case command if command == _REVIEW:
                with self.front.lock:
                    return _module("eks.token_review").answer(self.clouds, given)
            case "fault":
                self.fault(*(AwsFault.parse(each) for each in given["faults"]))
            case "leave":
                return self.leave(given["cluster"], VpcLeftover(given["leftover"]))
            case "reset":
                self.reset()
            case "revoke":
                self.revoke()
            case "restore":
                self.restore()
            case "plant-reservation":
                self.plant_reservation(**given)
            case "plant-endpoint":
                self.plant_endpoint(**given)
            case _:
                raise ValueError(f"the fake account has no command {command}")
        return None

    def verify_token(
        self, token: str, cluster: str, now: float | None = None
    ) -> AwsIdentity:
        """Check a token `k8s-aws-v1.…` for a cluster as its authenticator does.

        Raise TokenRefused. `now` is in seconds since 1970.
        """
        return verify_token(token, cluster, self.account.known, now)


def _module(name: str) -> Any:
    """Import a module that needs moto."""
    try:
        return importlib.import_module(f"fakes.aws.{name}")
    except ImportError as error:
        text = (
            f"the fake AWS needs moto, flask and flask-cors ({error}): pip install "
            "'modelplane-temporal[dev]', or 'moto[server]'"
        )
        raise MotoMissing(text) from error
