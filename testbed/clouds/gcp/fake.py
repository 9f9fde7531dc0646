"""A fake Google Cloud with one project, as a context manager: two servers, and what a test plants, changes and reads.

with FakeGoogle() as google:
google.fault(Throttle(call="container.create_cluster", times=2))
...                                     # clients that talk to google.grpc_target and google.compute_url
assert google.remains() == []
"""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from google.cloud import container_v1, filestore_v1, iam_admin_v1

from testbed.clouds.gcp.calls.faults import Fault, Kind
from testbed.clouds.gcp.calls.ledger import Ledger
from testbed.clouds.gcp.calls.tokens import Tokens
from testbed.clouds.gcp.servers.grpc_server import GrpcServer
from testbed.clouds.gcp.servers.http_server import REVIEW_PATH, TOKEN_PATH, HttpServer
from testbed.clouds.gcp.services import interference, leftovers
from testbed.clouds.gcp.services.dispatch import Dispatcher
from testbed.clouds.gcp.services.gke.capacity import Capacity
from testbed.clouds.gcp.services.world import NO_ENDPOINT, Endpoint, World

PROJECT = "fake-project"
PROVISIONER = "provisioner"


class FakeProject:
    """The project of a fake Google Cloud without the servers through which clients reach it.

    `reads` is after how many reads an operation is done, `page_size` the most that one page of a
    list has, `token_seconds` how long an access token lives by the clock.
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
        self._tokens = Tokens(token_seconds)
        self.email = f"{PROVISIONER}@{project}.iam.gserviceaccount.com"
        """The account of the credential."""
        self.token_url = ""
        """The token endpoint of OAuth2."""
        self._endpoints: dict[str, Endpoint] = {}
        self._new_endpoint: Callable[[str], Endpoint] | None = None
        self.dispatcher = Dispatcher(self._new_world())
        """Every call goes through it."""
        self.reset()

    def _new_world(self) -> World:
        world = World(self.project, self._reads, self._page_size, self._tokens)
        world.endpoint = self._endpoint
        return world

    def reset(self) -> None:
        """Begin anew: no faults, no calls, no objects but those at the beginning. The credential stays, and what `connect` was given."""
        with self.dispatcher.lock:
            for each in self._world.objects.values():
                if isinstance(each, iam_admin_v1.ServiceAccount) and each.email != self.email:
                    self._tokens.drop_account(each.email)
            self._tokens.restore(self.email)
            self._tokens.refuse(0)
            self.dispatcher.clear()
            world = self.dispatcher.world = self._new_world()
            world.token_uri = self.token_url
            account = f"{world.root}/serviceAccounts/{self.email}"
            world.objects[account] = iam_admin_v1.ServiceAccount(name=account, email=self.email, project_id=self.project, unique_id="1")
            world.policy.add("roles/owner", f"serviceAccount:{self.email}")
            leftovers.put(world, f"{world.root}/global/networks/default", autoCreateSubnetworks=True)
            world.keep_as_first()

    @property
    def _world(self) -> World:
        return self.dispatcher.world

    # What is read.

    def ledger(self) -> Ledger:
        """Give the record of all calls since the beginning or the last reset."""
        return self._world.ledger

    def remains(self) -> list[str]:
        """Give what is there beyond what the project began with; see `World.remains`."""
        with self.dispatcher.lock:
            return self._world.remains()

    def objects(self) -> list[str]:
        """Give the full names of all objects."""
        with self.dispatcher.lock:
            return sorted(self._world.objects)

    def object_of(self, name: str) -> Any:
        """Give an object by its full name, as it is now and not as a copy: JSON of compute, else the message of its API.

        Raises KeyError.
        """
        return self._world.objects[name]

    def members(self, role: str) -> list[str]:
        """Give who has a role in the project."""
        with self.dispatcher.lock:
            return self._world.policy.members(role)

    def enabled(self, service: str) -> bool:
        """Whether an API is enabled, such as `file.googleapis.com`."""
        return service in self._world.enabled

    def account_of(self, token: str) -> str | None:
        """Give the account of an access token that is accepted now."""
        with self.dispatcher.lock:
            return self._tokens.account_of(token)

    def tokens(self) -> list[str]:
        """Give the access tokens that were issued, to search for where none may be."""
        with self.dispatcher.lock:
            return self._tokens.issued()

    # What goes wrong.

    def fault(self, *faults: Fault) -> None:
        """Plant faults."""
        with self.dispatcher.lock:
            self._world.script.add(*faults)

    def faults_left(self) -> list[Fault]:
        """Give the faults that were not met in full."""
        with self.dispatcher.lock:
            return self._world.script.left()

    def clear_faults(self) -> None:
        """Drop all faults."""
        with self.dispatcher.lock:
            self._world.script.clear()

    def revoke(self, email: str | None = None) -> None:
        """Refuse the tokens of an account, and issue none for it, until `restore`; without an account that of the credential."""
        with self.dispatcher.lock:
            self._tokens.revoke(email or self.email)

    def restore(self, email: str | None = None) -> None:
        """Accept an account again."""
        with self.dispatcher.lock:
            self._tokens.restore(email or self.email)

    def expire_tokens(self) -> None:
        """End every access token that was issued; new ones can be had."""
        with self.dispatcher.lock:
            self._tokens.expire_all()

    def deny(self, *permissions: str) -> None:
        """Let `test_iam_permissions` not give these."""
        self._world.denied.update(permissions)

    def bar_keys(self, barred: bool = True) -> None:
        """Let an organization policy forbid keys of accounts."""
        self._world.keys_barred = barred

    def show_first_sizes(self) -> None:
        """Let pools go on to show the size that they were created with, when another one was set."""
        self._world.shows_first_sizes = True

    @property
    def capacity(self) -> Capacity:
        """Give the quotas and stocks, to change them."""
        return self._world.capacity

    # What other hands do.

    def plant(self, name: str, **fields: object) -> str:
        """Make an object of compute by its full name, such as `projects/p/zones/z/instances/i`. Gives the name."""
        with self.dispatcher.lock:
            return leftovers.put(self._world, name, **fields)

    def plant_message(self, name: str, message: container_v1.Cluster | container_v1.NodePool | filestore_v1.Instance) -> str:
        """Make a cluster, pool or Filestore instance by its full name. Gives the name."""
        with self.dispatcher.lock:
            self._world.objects[name] = message
            return name

    def plant_leftover(self, cluster: str, kind: Kind) -> list[str]:
        """Make what software in a cluster makes: see `leftovers.add`. Raises KeyError for a cluster that is not there."""
        with self.dispatcher.lock:
            return leftovers.add(self._world, self._world.objects[cluster], kind)

    def plant_member(self, role: str, member: str) -> None:
        """Give a role of the project to a member, such as `deleted:serviceAccount:a@p.iam.gserviceaccount.com?uid=1`."""
        with self.dispatcher.lock:
            self._world.policy.add(role, member)

    def begin_operation(self, cluster: str, kind: str = "UPGRADE_MASTER", reads: int = 3) -> str:
        """Let Google begin an operation on a cluster or pool, such as an automatic upgrade. Gives the full name of the operation."""
        with self.dispatcher.lock:
            return interference.begin_operation(self._world, cluster, kind, reads).name

    def remove(self, name: str) -> None:
        """Delete an object by hand, with all its parts and whatever runs on it."""
        with self.dispatcher.lock:
            interference.vanish(self._world, name)

    def finish(self) -> None:
        """Let everything that takes time be done: operations, and effects that come after their answer."""
        self.dispatcher.finish_late_effects()
        with self.dispatcher.lock:
            self._world.operations.finish_all()

    # Real API servers.

    def connect(self, new_endpoint: Callable[[str], Endpoint] | Mapping[str, Endpoint]) -> None:
        """Let clusters answer with real API servers: a table by full name, or a function that is asked once for each cluster.

        It is asked at the first read of a cluster that is ready, with its full name, while no other call is answered.
        """
        with self.dispatcher.lock:
            self._endpoints = {}
            self._new_endpoint = new_endpoint.__getitem__ if isinstance(new_endpoint, Mapping) else new_endpoint

    def _endpoint(self, cluster: str) -> Endpoint:
        if cluster not in self._endpoints:
            self._endpoints[cluster] = self._new_endpoint(cluster) if self._new_endpoint else NO_ENDPOINT
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
        super().__init__(project, reads=reads, page_size=page_size, token_seconds=token_seconds)
        self._http = HttpServer(self.dispatcher, http_port)
        try:
            self._grpc = GrpcServer(self.dispatcher, grpc_port)
        except BaseException:
            self._http.stop()
            raise
        self.grpc_target = f"127.0.0.1:{self._grpc.port}"
        """Where all gRPC services listen, without TLS."""
        self.compute_url = self._http.url
        """Where the compute API listens, without a path."""
        self.token_url = self._http.url + TOKEN_PATH
        self.review_url = self._http.url + REVIEW_PATH
        """The webhook for an API server's token authentication (`tokenReview` of a fleet file): the TokenReview of version v1."""
        if credential:
            key = self._tokens.known_key(self.email, credential, self.token_url)
        else:
            _, key = self._tokens.new_key(self.email, project, self.token_url)
        self.credential = key
        """The JSON key of an account that may do everything in the project."""
        self.reset()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End both servers."""
        self._grpc.stop()
        self._http.stop()
