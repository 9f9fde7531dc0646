"""Random orders of late, duplicate and lost messages.

No withdrawal is confirmed too early, and in the end every route is right. Owners,
services and the directory exchange messages that arrive in a random order. A service
applies a list some time after it received the list. Its route stands for the real one.
"""

import random
from dataclasses import dataclass, field

from hypothesis import given, strategies

from api_types.base import Message
from api_types.messages.routing import (
    EndpointReport,
    EndpointWithdrawn,
    Routed,
    ServiceEndpoints,
    ServiceReport,
)
from tests.random_cases import random_cases
from tests.workflows.endpoint_directory.test_directory import (
    NAMESPACE,
    by,
    reported,
    serving,
)
from workflows.endpoint_directory.directory import Directory
from workflows.endpoint_directory.state import DirectoryState

APPS = ("a", "b")


@dataclass
class Owner:
    """An owner: its last report, and whether its withdrawal was confirmed."""

    name: str
    app: str
    sequence: int = 0
    published: bool = False
    withdrawn: int = 0

    def report(self) -> EndpointReport:
        found = reported(self.name, self.sequence, app=self.app)
        return found if self.published else found.model_copy(update={"endpoint": None})


@dataclass
class Service:
    """A service: its newest list, and its route."""

    name: str
    app: str
    report_sequence: int = 1
    newest: ServiceEndpoints | None = None
    applied: int = 0
    route: list[str] = field(default_factory=list)

    def report(self) -> ServiceReport:
        return serving(
            self.name,
            by(app=self.app),
            sequence=self.report_sequence,
            routed=self.route,
        )


@dataclass
class World:
    rng: random.Random
    owners: list[Owner]
    services: list[Service]
    directory: Directory
    to_directory: list[Message] = field(default_factory=list)
    to_services: list[tuple[str, ServiceEndpoints]] = field(default_factory=list)
    to_owners: list[tuple[str, EndpointWithdrawn]] = field(default_factory=list)
    clock: int = 10

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    # Events

    def step(self) -> None:
        self.rng.choice(
            [
                self.owner_changes,
                self.service_changes,
                self.directory_receives,
                self.directory_sends,
                self.service_receives,
            ]
            + [
                self.service_applies,
                self.owner_receives,
                self.directory_is_lost,
                self.directory_continues,
            ]
            * (self.rng.random() < 0.5)
        )()

    def owner_changes(self) -> None:
        owner = self.rng.choice(self.owners)
        owner.published, owner.sequence = not owner.published, self.tick()
        self.to_directory.append(owner.report())

    def service_changes(self) -> None:
        service = self.rng.choice(self.services)
        service.app, service.report_sequence = self.rng.choice(APPS), self.tick()
        self.to_directory.append(service.report())

    def directory_receives(self) -> None:
        if self.to_directory:
            # Any message may arrive, and it may arrive again.
            at = self.rng.randrange(len(self.to_directory))
            message = (
                self.to_directory[at]
                if self.rng.random() < 0.2
                else self.to_directory.pop(at)
            )
            self.deliver(message)

    def deliver(self, message: Message) -> None:
        match message:
            case Routed():
                self.directory.routed(message)
            case EndpointReport():
                self.directory.report_endpoint(message)
            case ServiceReport():
                self.directory.report_service(message)

    def directory_sends(self) -> None:
        self.to_owners += [
            (
                request.workflow_id.rpartition("/")[2],
                EndpointWithdrawn.model_validate(request.payload),
            )
            for request in self.directory.answers()
        ]
        self.to_services += [
            (name, ServiceEndpoints.model_validate(request.payload))
            for name, request in self.directory.lists().items()
        ]

    def service_receives(self) -> None:
        if self.to_services:
            name, found = self.to_services.pop(
                self.rng.randrange(len(self.to_services))
            )
            service = self.named(name)
            if service.newest is None or found.version >= service.newest.version:
                service.newest = found

    def service_applies(self) -> None:
        service = self.rng.choice(self.services)
        found = service.newest
        if found is None or found.sequence != service.report_sequence:
            return
        service.route = [
            endpoint.name for entry in found.entries for endpoint in entry.endpoints
        ]
        service.applied = found.version
        answer = Routed(
            service=service.name,
            uid=f"uid-{service.name}",
            version=found.version,
            endpoints=service.route,
        )
        self.to_directory.append(answer)

    def owner_receives(self) -> None:
        if self.to_owners:
            name, message = self.to_owners.pop(self.rng.randrange(len(self.to_owners)))
            owner = next(owner for owner in self.owners if owner.name == name)
            if message.sequence == owner.sequence and not owner.published:
                # The owner removes its backend now. No route may contain it from here
                # on.
                owner.withdrawn = owner.sequence
                for service in self.services:
                    assert name not in service.route, (name, service)

    def directory_is_lost(self) -> None:
        """Replace the directory.

        The new one queries all owners and services before it sends anything, and
        receives the messages to the lost one.
        """
        self.directory = Directory(
            NAMESPACE, DirectoryState(), lambda last: max(last + 1, self.tick())
        )
        for owner in self.owners:
            if owner.sequence:
                self.deliver(owner.report())
        for service in self.services:
            self.deliver(service.report())
        self.directory.complete()

    def directory_continues(self) -> None:
        """Start the next run after everything was sent."""
        self.directory_sends()
        state = DirectoryState.model_validate(
            self.directory.carried(DirectoryState()).model_dump(
                mode="json", by_alias=True
            )
        )
        self.directory = Directory(
            NAMESPACE, state, lambda last: max(last + 1, self.tick())
        )

    def named(self, name: str) -> Service:
        return next(service for service in self.services if service.name == name)

    def settle(self) -> None:
        """Deliver all messages and apply all lists."""
        for _ in range(20):
            for message in self.to_directory:
                self.deliver(message)
            self.to_directory.clear()
            self.directory_sends()
            while self.to_services:
                self.service_receives()
            for service in self.services:
                if (
                    service.newest
                    and service.newest.sequence == service.report_sequence
                    and service.applied != service.newest.version
                ):
                    service.route = [
                        endpoint.name
                        for entry in service.newest.entries
                        for endpoint in entry.endpoints
                    ]
                    service.applied = service.newest.version
                    uid, version = f"uid-{service.name}", service.newest.version
                    self.to_directory.append(
                        Routed(
                            service=service.name,
                            uid=uid,
                            version=version,
                            endpoints=service.route,
                        )
                    )
            while self.to_owners:
                self.owner_receives()


@random_cases(400)
@given(rng=strategies.randoms(use_true_random=True))
def test_no_withdrawal_is_confirmed_too_early_and_all_routes_are_right_in_the_end(
    rng: random.Random,
) -> None:
    owners = [
        Owner(f"e{number}", rng.choice(APPS)) for number in range(rng.randint(1, 4))
    ]
    services = [
        Service(f"s{number}", rng.choice(APPS)) for number in range(rng.randint(1, 3))
    ]
    world = World(
        rng,
        owners,
        services,
        Directory(NAMESPACE, DirectoryState(), lambda last: last + 1),
    )
    world.directory = Directory(
        NAMESPACE,
        DirectoryState(surveyed=True),
        lambda last: max(last + 1, world.tick()),
    )
    world.to_directory += [service.report() for service in services]
    for _ in range(rng.randint(10, 120)):
        world.step()
    world.settle()
    for service in services:
        assert service.route == sorted(
            owner.name
            for owner in owners
            if owner.published and owner.app == service.app
        ), service
    for owner in owners:
        assert owner.published or owner.sequence == owner.withdrawn, owner
