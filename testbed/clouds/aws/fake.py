"""The fake AWS account as a test or a program holds it."""

import importlib
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from testbed.clouds.aws.account import Account, Credential
from testbed.clouds.aws.faults import Fault, Leftover, Script
from testbed.clouds.aws.ledger import Entry
from testbed.clouds.aws.signatures import Identity, verify_token

if TYPE_CHECKING:
    from testbed.clouds.aws.cloud import Cloud
    from testbed.clouds.aws.front import Front

HOST = "127.0.0.1"
FIRST_ACCOUNT = 100_000_000_000
_NUMBERS = itertools.count(FIRST_ACCOUNT + 1)
_SECONDS_TO_NOTICE_ITS_END = 0.05
_REVIEW = "token-review"


class MotoMissing(ImportError):
    """moto, or what it serves with, is not installed; the message says how to install it."""


class FakeAws:
    """One AWS account in one region, served on a free port of this machine while the `with` block runs.

    Several can be open in one process: each has its own account number. `create_reads`, `delete_reads` and `update_reads` are how many
    reads show an object as being created, deleted or updated: NAT gateways, clusters, node groups, add-ons, file systems, mount targets.
    `unsupported_zones` are those in which EKS and EFS make nothing. `role` makes the first credential a session of this role; without
    it, it is that of a user. `on_cluster_ready` gets the name of a cluster that becomes ACTIVE and gives what it hands out, endpoint and CA
    certificate (PEM in Base64), or None for made-up ones. It is called while the account answers nobody else, so it must not call it.
    `only_reviews`: other processes may ask about tokens and nothing else.
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
        faults: Sequence[Fault] = (),
        on_cluster_ready: Callable[[str], tuple[str, str] | None] | None = None,
        role: str | None = None,
        only_reviews: bool = False,
    ) -> None:
        self.region, self.url = region, ""
        self.account = Account(f"{next(_NUMBERS)}", region)
        self.credential = self.account.user("modelplane") if role is None else self.account.role_session(role)
        self._delays = {"create": create_reads, "delete": delete_reads, "update": update_reads}
        self._zones, self._port, self._faults, self._on_ready = frozenset(unsupported_zones), port, tuple(faults), on_cluster_ready
        self._only_reviews = only_reviews
        self._front: Front | None = None
        self._server: Any = None
        self._thread: threading.Thread | None = None
        self._began: set[str] = set()
        # Making a client takes a second: it reads all that AWS has said of the service.
        self._clients: dict[object, Any] = {}

    def __enter__(self) -> Self:
        """Serve. Raises MotoMissing where moto is not installed."""
        front, cloud = _module("front"), _module("cloud")
        made = cloud.Cloud(self.account, cloud.Delays(**self._delays), Script(self._faults), self._zones, on_ready=self._on_ready)
        made.check_policies()
        self._front = front.Front(made, control=self.control)
        self._began = _module("services.remains").everything(made)
        self._server = _module("server").make(HOST, self._port, self._front)
        self.url = f"http://{HOST}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_SECONDS_TO_NOTICE_ITS_END,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop serving, and forget the account."""
        self.front.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        if self._thread is not None:
            self._thread.join()
        self.cloud.clear()

    @property
    def front(self) -> "Front":
        """The server's application; raises RuntimeError outside of the `with` block."""
        if self._front is None:
            raise RuntimeError("the fake account is not served: use it in a `with` block")
        return self._front

    @property
    def review_url(self) -> str:
        """The webhook for an API server's token authentication (`tokenReview` of a fleet file): the TokenReview of version v1."""
        return f"{self.url}/_fake/{_REVIEW}"

    @property
    def cloud(self) -> "Cloud":
        """The state of the account, for tests that change what no call could."""
        return self.front.cloud

    def client(self, service: str, credential: Credential | None = None, **config: Any) -> Any:
        """Give a boto3 client of a service, without retries unless `config`, arguments of botocore's Config, has them."""
        who, key = credential or self.credential, (service, credential, repr(config))
        if key not in self._clients:
            boto3, settings = importlib.import_module("boto3"), importlib.import_module("botocore.config")
            session = boto3.session.Session(who.access_key, who.secret_key, who.session_token, region_name=self.region)
            given = settings.Config(**{"retries": {"total_max_attempts": 1, "mode": "standard"}, **config})
            self._clients[key] = session.client(service, endpoint_url=self.url, config=given)
        return self._clients[key]

    def ledger(self, operation: str = "", service: str = "") -> list[Entry]:
        """Give the calls that came, in order; only those of an operation or of a service where one is given."""
        with self.front.lock:
            found = list(self.front.ledger.entries)
        return [each for each in found if operation in ("", each.operation) and service in ("", each.service)]

    def made(self, operation: str) -> int:
        """Give how often an operation was effective: neither refused nor repeated by its token."""
        return sum(each.effective for each in self.ledger(operation))

    def fault(self, *faults: Fault) -> None:
        """Plan faults, after those that are planned already."""
        with self.front.lock:
            self.cloud.script.add(*faults)

    def faults_left(self) -> list[Fault]:
        """Give the faults that have not been used up."""
        with self.front.lock:
            return self.cloud.script.left()

    def remains(self) -> list[str]:
        """Give all that exists and did not at the start, as `service/kind/id`, in order. What is being deleted exists."""
        with self.front.lock:
            return sorted(_module("services.remains").everything(self.cloud) - self._began)

    def reset(self) -> None:
        """Go back to the start: no objects, no calls, no faults. Credentials stay, and none is revoked."""
        with self.front.lock:
            cloud = _module("cloud")
            self.cloud.empty()
            self.account.revoked.clear()
            made = cloud.Cloud(self.account, cloud.Delays(**self._delays), Script(), self._zones, on_ready=self._on_ready)
            made.check_policies()
            self.front.cloud = made
            self.front.reset()
            self._began = _module("services.remains").everything(made)

    def revoke(self, credential: Credential | None = None) -> None:
        """Refuse all calls with a credential from now on; the account's own where none is given."""
        with self.front.lock:
            self.account.revoked.add((credential or self.credential).access_key)

    def restore(self, credential: Credential | None = None) -> None:
        """Accept a credential again."""
        with self.front.lock:
            self.account.revoked.discard((credential or self.credential).access_key)

    def plant_reservation(self, reservation: str, zone: str, instance_type: str, count: int, state: str = "active") -> None:
        """Let the account have a capacity block of so many machines, or change the one that it has."""
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

    def plant_endpoint(self, cluster: str, endpoint: str, certificate_authority: str) -> None:
        """Let a cluster hand out this address and CA certificate (PEM in Base64), from when it becomes ACTIVE on or at once."""
        with self.front.lock:
            self.cloud.endpoints[cluster] = (endpoint, certificate_authority)
            found = self.cloud.eks.clusters.get(cluster)
            if found is not None and "endpoint" in found.body:
                found.body.update(endpoint=endpoint, certificateAuthority={"data": certificate_authority})

    def leave(self, cluster: str, leftover: Leftover) -> str:
        """Let a cluster leave something behind now; gives its id or name. Raises KeyError where there is no such cluster."""
        with self.front.lock:
            return str(_module("services.leaks").leave(self.cloud, self.cloud.eks.clusters[cluster], leftover))

    def leave_nodes(self, cluster: str, group: str) -> list[str]:
        """Let EKS leave what it makes for a node group: see `eks.scaling.leave`. Raises KeyError where there is no such group."""
        with self.front.lock:
            return list(_module("eks.scaling").leave(self.cloud, cluster, group))

    def control(self, command: str, given: Mapping[str, Any]) -> Any:
        """Do for another process what a method does here: the command of `remote.RemoteAws`, its arguments, and its answer as JSON.

        An API server is such a process too, which asks about a token. Raises ValueError for a command that is none.
        """
        if self._only_reviews and command != _REVIEW:
            raise ValueError(f"no command {command}")
        match command:
            case "about":
                return {"account": self.account.number, "region": self.region, "credential": self.credential.text}
            case "ledger":
                return [each.document() for each in self.ledger()]
            case "faults":
                return [each.document() for each in self.faults_left()]
            case "remains":
                return self.remains()
            case command if command == _REVIEW:
                with self.front.lock:
                    return _module("eks.token_review").answer(self.cloud, given)
            case "fault":
                self.fault(*(Fault.parse(each) for each in given["faults"]))
            case "leave":
                return self.leave(given["cluster"], Leftover(given["leftover"]))
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

    def verify_token(self, token: str, cluster: str, now: float | None = None) -> Identity:
        """Check a token `k8s-aws-v1.…` for a cluster as its authenticator would; raises TokenRefused. `now` in seconds since 1970."""
        return verify_token(token, cluster, self.account.known, now)


def _module(name: str) -> Any:
    """Give a module that needs moto."""
    try:
        return importlib.import_module(f"testbed.clouds.aws.{name}")
    except ImportError as error:
        text = f"the fake AWS needs moto, flask and flask-cors ({error}): pip install 'modelplane-temporal[dev]', or 'moto[server]'"
        raise MotoMissing(text) from error
