"""Workers that die: before a call to the cloud, after it, or while they wait for the cloud."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

from activities.clouds.eks.clients import Answer, AwsClients
from activities.clouds.eks.failures import Purpose
from activities.clouds.gke.api import GoogleApi
from activities.clouds.gke.clients import GoogleClients
from activities.clouds.lifecycle.handler import Found, Handler, State, Wanted

BEFORE, AFTER, POLLING = "before the call", "after the call", "while polling"
CREATE, UPDATE, DELETE = "create", "update", "delete"

ResultT = TypeVar("ResultT")

worked_on: ContextVar[tuple[str, str]] = ContextVar("worked_on", default=("", ""))
"""What this task does, and the key of the object that it works on; both empty where it works on none."""


class WorkerDied(Exception):
    """The worker ends here: what it was doing is not reported to anybody."""


class Deaths:
    """Decides where a worker dies. `passed` counts where one could, `struck` where one did: by moment, what is done, and key."""

    def __init__(self, decide: Callable[[str, str, str], bool] = lambda *_: False) -> None:
        self._decide = decide
        self.passed: Counter[tuple[str, str, str]] = Counter()
        self.struck: Counter[tuple[str, str, str]] = Counter()

    def at(self, moment: str, doing: str, key: str) -> None:
        """Die, if it is decided so. Raises WorkerDied."""
        self.passed[moment, doing, key] += 1
        if self._decide(moment, doing, key):
            self.struck[moment, doing, key] += 1
            raise WorkerDied(f"{moment}: {doing} {key}")

    def call(self, operation: str, call: Callable[[], ResultT]) -> ResultT:
        """Make a call that changes something at the cloud. What an attempt did not get to, the next one may make as a change."""
        work, key = worked_on.get()
        doing = f"{CREATE if work == UPDATE else work} {operation}"
        self.at(BEFORE, doing, key)
        result = call()
        self.at(AFTER, doing, key)
        return result


class Mortal:
    """A handler of a worker that may die while it polls, and whose calls know what they are for."""

    def __init__(self, handler: Handler, deaths: Deaths) -> None:
        self._handler = handler
        self._deaths = deaths

    def look(self, wanted: Wanted) -> Found:
        found = self._handler.look(wanted)
        if found.state in (State.PENDING, State.DELETING):
            self._deaths.at(POLLING, CREATE if found.state is State.PENDING else DELETE, wanted.object.key)
        return found

    def create(self, wanted: Wanted) -> None:
        self._do(CREATE, wanted, lambda: self._handler.create(wanted))

    def update(self, wanted: Wanted, found: Found) -> None:
        self._do(UPDATE, wanted, lambda: self._handler.update(wanted, found))

    def delete(self, wanted: Wanted, found: Found) -> None:
        self._do(DELETE, wanted, lambda: self._handler.delete(wanted, found))

    def _do(self, work: str, wanted: Wanted, call: Callable[[], None]) -> None:
        token = worked_on.set((work, wanted.object.key))
        try:
            call()
        finally:
            worked_on.reset(token)


class MortalGoogle(GoogleApi):
    """Calls to Google Cloud of a worker that may die."""

    def __init__(self, clients: GoogleClients, deaths: Deaths) -> None:
        super().__init__(clients)
        self._deaths = deaths

    def _written(self, service: str, operation: str, request: Any) -> Any:
        return self._deaths.call(operation, lambda: super(MortalGoogle, self)._written(service, operation, request))


class MortalAws(AwsClients):
    """Calls to AWS of a worker that may die, with the clients of others: making them takes seconds."""

    def __init__(self, shared: AwsClients, deaths: Deaths) -> None:
        self.__dict__.update(shared.__dict__)
        self._deaths = deaths
        # The fake's time is the real one, to which that which passes in the loop is added.
        self.seconds = lambda: shared.seconds() + asyncio.get_running_loop().time()

    def call(self, service: str, operation: str, parameters: Mapping[str, Any], purpose: Purpose) -> Answer | None:
        def made() -> Answer | None:
            return super(MortalAws, self).call(service, operation, parameters, purpose)

        return made() if purpose is Purpose.READ else self._deaths.call(operation, made)

    def create_cluster(self, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        return self._deaths.call("create_cluster", lambda: super(MortalAws, self).create_cluster(parameters))
