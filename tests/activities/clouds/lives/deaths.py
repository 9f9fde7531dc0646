"""Workers that die: before a call to the cloud, after it, or during a wait for the
cloud.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

from activities.clouds.eks.clients import Answer, AwsClients
from activities.clouds.eks.failures import Purpose
from activities.clouds.gke.api import GoogleApi
from activities.clouds.gke.clients import GoogleClients
from activities.clouds.lifecycle.handler import (
    CloudObservation,
    ObjectHandler,
    ObjectWork,
    State,
)

BEFORE, AFTER, POLLING = "before the call", "after the call", "while polling"
CREATE, UPDATE, DELETE = "create", "update", "delete"

ResultT = TypeVar("ResultT")

worked_on: ContextVar[tuple[str, str]] = ContextVar("worked_on", default=("", ""))
"""The current work of this task, and the key of its object.

Both are empty without an object.
"""


class WorkerDied(Exception):
    """The worker died, and its work is not reported to anybody."""


class Deaths:
    """Decides where a worker dies.

    `passed` counts the possible points, and `struck` the deaths, by moment, work and
    key.
    """

    def __init__(
        self, decide: Callable[[str, str, str], bool] = lambda *_: False
    ) -> None:
        self._decide = decide
        self.passed: Counter[tuple[str, str, str]] = Counter()
        self.struck: Counter[tuple[str, str, str]] = Counter()

    def at(self, moment: str, doing: str, key: str) -> None:
        """Die if this point is chosen. Raises WorkerDied."""
        self.passed[moment, doing, key] += 1
        if self._decide(moment, doing, key):
            self.struck[moment, doing, key] += 1
            raise WorkerDied(f"{moment}: {doing} {key}")

    def call(self, operation: str, call: Callable[[], ResultT]) -> ResultT:
        """Make a writing call.

        The next attempt may make an interrupted one as a change.
        """
        work, key = worked_on.get()
        doing = f"{CREATE if work == UPDATE else work} {operation}"
        self.at(BEFORE, doing, key)
        result = call()
        self.at(AFTER, doing, key)
        return result


class Mortal:
    """A handler of a worker that may die while it polls.

    Its calls know their purpose.
    """

    def __init__(self, handler: ObjectHandler, deaths: Deaths) -> None:
        self._handler = handler
        self._deaths = deaths

    def look(self, wanted: ObjectWork) -> CloudObservation:
        found = self._handler.look(wanted)
        if found.state in (State.PENDING, State.DELETING):
            self._deaths.at(
                POLLING,
                CREATE if found.state is State.PENDING else DELETE,
                wanted.object.key,
            )
        return found

    def create(self, wanted: ObjectWork) -> None:
        self._do(CREATE, wanted, lambda: self._handler.create(wanted))

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        self._do(UPDATE, wanted, lambda: self._handler.update(wanted, found))

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        self._do(DELETE, wanted, lambda: self._handler.delete(wanted, found))

    def _do(self, work: str, wanted: ObjectWork, call: Callable[[], None]) -> None:
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
        return self._deaths.call(
            operation,
            lambda: super(MortalGoogle, self)._written(service, operation, request),
        )


class MortalAws(AwsClients):
    """Calls to AWS of a worker that may die.

    The clients are shared, because creating them takes seconds.
    """

    def __init__(self, shared: AwsClients, deaths: Deaths) -> None:
        self.__dict__.update(shared.__dict__)
        self._deaths = deaths
        # The fake's time is the real time plus the virtual time of the loop.
        self.seconds = lambda: shared.seconds() + asyncio.get_running_loop().time()

    def call(
        self,
        service: str,
        operation: str,
        parameters: Mapping[str, Any],
        purpose: Purpose,
    ) -> Answer | None:
        def made() -> Answer | None:
            return super(MortalAws, self).call(service, operation, parameters, purpose)

        return made() if purpose is Purpose.READ else self._deaths.call(operation, made)

    def create_cluster(self, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        return self._deaths.call(
            "create_cluster", lambda: super(MortalAws, self).create_cluster(parameters)
        )
