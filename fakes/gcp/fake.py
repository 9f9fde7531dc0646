"""A fake Google Cloud with one project: two servers, and methods for tests.

with FakeGoogle() as google:
    google.fault(Throttle(call="container.create_cluster", times=2))
    ...  # use clients of google.grpc_target and google.compute_url
    assert google.remains() == []
"""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from google.cloud import container_v1, filestore_v1, iam_admin_v1

from fakes.gcp.calls.faults import GcpFault, Kind
from fakes.gcp.calls.ledger import GcpLedger
from fakes.gcp.calls.tokens import GcpTokens
from fakes.gcp.servers.grpc_server import GrpcServer
from fakes.gcp.servers.http_server import REVIEW_PATH, TOKEN_PATH, HttpServer
from fakes.gcp.services import interference, leftovers
from fakes.gcp.services.dispatch import Dispatcher
from fakes.gcp.services.gke.capacity import GcpCapacity
from fakes.gcp.services.world import NO_ENDPOINT, GcpEndpoint, World

PROJECT = "fake-project"
PROVISIONER = "provisioner"


class FakeProject:
    """The project of a fake Google Cloud, without servers.

    An operation is done after `reads` reads. A page of a list has at most `page_size`
    items. An access token is valid for `token_seconds` by the clock.
    """

    def __init__(
        self,
        project: str = PROJECT,
        *,
        reads: int = 2,
        page_size: int = 100,
        token_seconds: int = 3600,
    ) -> None:
        self.project = project
        self._reads, self._page_size = reads, page_size
        self._tokens = GcpTokens(token_seconds)
        self.email = f"{PROVISIONER}@{project}.iam.gserviceaccount.com"
        """The account of the credential."""
        self.token_url = ""
        """The token endpoint of OAuth2."""
        self._endpoints: dict[str, GcpEndpoint] = {}
        self._new_endpoint: Callable[[str], GcpEndpoint] | None = None
        self.dispatcher = Dispatcher(self._new_world())
        """Every call passes through it."""
        self.reset()

    def _new_world(self) -> World:
        world = World(self.project, self._reads, self._page_size, self._tokens)
        world.endpoint = self._endpoint
        return world

    def reset(self) -> None:
        """Reset everything but the credential and the API servers of `connect`."""
        with self.dispatcher.lock:
            for each in self._world.objects.values():
                if (
                    isinstance(each, iam_admin_v1.ServiceAccount)
                    and each.email != self.email
                ):
                    self._tokens.drop_account(each.email)
            self._tokens.restore(self.email)
            self._tokens.refuse(0)
            self._tokens.skewed = False
            self.dispatcher.clear()
            world = self.dispatcher.world = self._new_world()
            world.token_uri = self.token_url
            account = f"{world.root}/serviceAccounts/{self.email}"
            world.objects[account] = iam_admin_v1.ServiceAccount(
                name=account, email=self.email, project_id=self.project, unique_id="1"
            )
            world.policy.add("roles/owner", f"serviceAccount:{self.email}")
            leftovers.put(
                world,
                f"{world.root}/global/networks/default",
                autoCreateSubnetworks=True,
            )
            world.keep_as_first()

    @property
    def _world(self) -> World:
        return self.dispatcher.world

    # Reading

    def ledger(self) -> GcpLedger:
        """Return the calls since the start or the last reset."""
        return self._world.ledger

    def remains(self) -> list[str]:
        """Return the objects that did not exist at the start; see `World.remains`."""
        with self.dispatcher.lock:
            return self._world.remains()

    def objects(self) -> list[str]:
        """Return the full names of all objects."""
        with self.dispatcher.lock:
            return sorted(self._world.objects)

    def object_of(self, name: str) -> Any:
        """Return an object by its full name, and not a copy.

        It is JSON for compute, else the message of its API. Raise KeyError.
        """
        return self._world.objects[name]

    def members(self, role: str) -> list[str]:
        """Return the members of a role in the project."""
        with self.dispatcher.lock:
            return self._world.policy.members(role)

    def enabled(self, service: str) -> bool:
        """Return whether an API is enabled, such as `file.googleapis.com`."""
        return service in self._world.enabled

    def account_of(self, token: str) -> str | None:
        """Return the account of an accepted access token."""
        with self.dispatcher.lock:
            return self._tokens.account_of(token)

    def tokens(self) -> list[str]:
        """Return the issued access tokens, for tests that search for leaked tokens."""
        with self.dispatcher.lock:
            return self._tokens.issued()

    # Faults

    def fault(self, *faults: GcpFault) -> None:
        """Plant faults."""
        with self.dispatcher.lock:
            self._world.script.add(*faults)

    def faults_left(self) -> list[GcpFault]:
        """Return the faults that are not used up."""
        with self.dispatcher.lock:
            return self._world.script.left()

    def clear_faults(self) -> None:
        """Drop all faults."""
        with self.dispatcher.lock:
            self._world.script.clear()

    def revoke(self, email: str | None = None) -> None:
        """Refuse the tokens of an account, and issue none, until `restore`.

        The default is the account of the credential.
        """
        with self.dispatcher.lock:
            self._tokens.revoke(email or self.email)

    def restore(self, email: str | None = None) -> None:
        """Accept an account again."""
        with self.dispatcher.lock:
            self._tokens.restore(email or self.email)

    def set_clock(self, ahead_seconds: float) -> None:
        """Set the seconds by which Google's clock is ahead of this machine's."""
        with self.dispatcher.lock:
            self._tokens.ahead_seconds = ahead_seconds

    def accept_token(
        self, token: str, subject: str, pool: str = "fleet"
    ) -> tuple[str, str]:
        """Accept a token of an identity provider in a workload identity pool.

        Return the audience of the pool's provider, and the principal of the subject.
        """
        with self.dispatcher.lock:
            return self._tokens.federation.accept(pool, token, subject)

    def allow_impersonation(self, principal: str, email: str) -> None:
        """Let a principal or an account create tokens of an account."""
        with self.dispatcher.lock:
            self._tokens.federation.impersonators.add((principal, email))

    def attach(self, email: str) -> None:
        """Attach an account to the machine of the worker."""
        with self.dispatcher.lock:
            self._tokens.federation.worker = email

    def expire_tokens(self) -> None:
        """End every issued access token. New ones are available."""
        with self.dispatcher.lock:
            self._tokens.expire_all()

    def deny(self, *permissions: str) -> None:
        """Make `test_iam_permissions` deny these permissions."""
        self._world.denied.update(permissions)

    def limit(self, email: str, *permissions: str) -> None:
        """Limit an account to permissions, as custom roles do."""
        with self.dispatcher.lock:
            self._world.limits[email] = frozenset(permissions)

    def bar_keys(self, barred: bool = True) -> None:
        """Make an organization policy forbid keys of accounts."""
        self._world.keys_barred = barred

    def show_first_sizes(self) -> None:
        """Make pools show their initial size after a resize."""
        self._world.shows_first_sizes = True

    @property
    def capacity(self) -> GcpCapacity:
        """Return the quotas and stocks, which a test may change."""
        return self._world.capacity

    # Other clients

    def plant(self, name: str, **fields: object) -> str:
        """Create an object of compute by its full name.

        An example is `projects/p/zones/z/instances/i`. Return the name.
        """
        with self.dispatcher.lock:
            return leftovers.put(self._world, name, **fields)

    def plant_message(
        self,
        name: str,
        message: container_v1.Cluster | container_v1.NodePool | filestore_v1.Instance,
    ) -> str:
        """Create a cluster, pool or Filestore instance by its full name.

        Return the name.
        """
        with self.dispatcher.lock:
            self._world.objects[name] = message
            return name

    def plant_leftover(self, cluster: str, kind: Kind) -> list[str]:
        """Create objects as software in a cluster does; see `leftovers.add`.

        Raise KeyError.
        """
        with self.dispatcher.lock:
            return leftovers.add(self._world, self._world.objects[cluster], kind)

    def plant_member(self, role: str, member: str) -> None:
        """Grant a role of the project to a member.

        An example is `deleted:serviceAccount:a@p.iam.gserviceaccount.com?uid=1`.
        """
        with self.dispatcher.lock:
            self._world.policy.add(role, member)

    def begin_operation(
        self, cluster: str, kind: str = "UPGRADE_MASTER", reads: int = 3
    ) -> str:
        """Start an operation of Google on a cluster or pool, such as an upgrade.

        Return the full name of the operation.
        """
        with self.dispatcher.lock:
            return interference.begin_operation(self._world, cluster, kind, reads).name

    def remove(self, name: str) -> None:
        """Delete an object with all its parts and operations, as another client."""
        with self.dispatcher.lock:
            interference.vanish(self._world, name)

    def finish(self) -> None:
        """Complete all operations, and effects that follow their answer."""
        self.dispatcher.finish_late_effects()
        with self.dispatcher.lock:
            self._world.operations.finish_all()

    # Real API servers

    def connect(
        self, new_endpoint: Callable[[str], GcpEndpoint] | Mapping[str, GcpEndpoint]
    ) -> None:
        """Set the API servers of clusters: a table by full name, or a function.

        The function gets the full name at the first read of a ready cluster, while no
        other call is answered.
        """
        with self.dispatcher.lock:
            self._endpoints = {}
            self._new_endpoint = (
                new_endpoint.__getitem__
                if isinstance(new_endpoint, Mapping)
                else new_endpoint
            )

    def _endpoint(self, cluster: str) -> GcpEndpoint:
        if cluster not in self._endpoints:
            self._endpoints[cluster] = (
                self._new_endpoint(cluster) if self._new_endpoint else NO_ENDPOINT
            )
        return self._endpoints[cluster]


class FakeGoogle(FakeProject):
    """The cloud, with its servers.

    A port 0 selects a free port. `credential` is the key of an earlier fake, which is accepted
    again; the default is a new key. `FakeProject` describes the other arguments.
    """

    def __init__(
        self,
        project: str = PROJECT,
        *,
        reads: int = 2,
        page_size: int = 100,
        token_seconds: int = 3600,
        grpc_port: int = 0,
        http_port: int = 0,
        credential: str = "",
    ) -> None:
        super().__init__(
            project, reads=reads, page_size=page_size, token_seconds=token_seconds
        )
        self._http = HttpServer(self.dispatcher, http_port)
        try:
            self._grpc = GrpcServer(self.dispatcher, grpc_port)
        except BaseException:
            self._http.stop()
            raise
        self.grpc_target = f"127.0.0.1:{self._grpc.port}"
        """The address of all gRPC services, without TLS."""
        self.compute_url = self._http.url
        """The address of the compute API, without a path."""
        self.token_url = self._http.url + TOKEN_PATH
        self.review_url = self._http.url + REVIEW_PATH
        """The webhook for an API server's token authentication (`tokenReview` of a
        fleet file).

        It answers a TokenReview of version v1.
        """
        if credential:
            key = self._tokens.known_key(self.email, credential, self.token_url)
        else:
            _, key = self._tokens.new_key(self.email, project, self.token_url)
        self.credential = key
        """The JSON key of an account with all rights in the project."""
        self.reset()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop both servers."""
        self._grpc.stop()
        self._http.stop()
