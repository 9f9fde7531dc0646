"""One call from its arrival to its answer: token, faults, effect, ledger.

Both servers use it.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fakes.gcp.calls.errors import CloudError, ConnectionCut
from fakes.gcp.calls.faults import (
    ConcurrentOperation,
    EtagRace,
    ForeignOwner,
    GcpFault,
    Invisible,
    LateEffect,
    LoseAnswer,
    RevokeCredential,
    Slow,
    Vanish,
)
from fakes.gcp.calls.ledger import FAILED, LATE, LOST, OK, REPEATED
from fakes.gcp.calls.script import first_of
from fakes.gcp.services import interference, permissions
from fakes.gcp.services.world import World

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class GcpRequest:
    """An incoming call.

    `host` is the host of its API, such as `container.googleapis.com`.
    """

    host: str
    service: str
    method: str
    target: str
    message: Mapping[str, Any]
    token: str | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """Return service and method, as faults and the ledger name them."""
        return f"{self.service}.{self.method}"


@dataclass
class _Late:
    """An effect that follows its answer."""

    calls_left: int
    request: GcpRequest
    account: str
    act: Callable[[], object]


class Dispatcher:
    """Gives one call at a time access to the world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lock = threading.RLock()
        self._late: list[_Late] = []

    def run(self, request: GcpRequest, act: Callable[[], _Answer]) -> _Answer:
        """Answer a call.

        `act` applies the effect and returns the answer. Raise CloudError, or
        ConnectionCut for no answer.
        """
        with self.lock:
            self._late_effects()
            met = self.world.script.take(request.name, request.target)
        if slow := first_of(met, Slow):
            # Other calls are answered meanwhile, as by any server.
            time.sleep(slow.seconds)
        with self.lock:
            account = ""
            try:
                account = self._admitted(request, met)
                answer = self._acted(request, account, met, act)
            except CloudError as error:
                self._record(request, error.code, account)
                raise
            except Exception:
                self._record(request, FAILED, account)
                raise
            if lost := first_of(met, LoseAnswer):
                self._record(
                    request, REPEATED if self.world.repeated else LOST, account
                )
                if lost.how == "cut":
                    raise ConnectionCut
                raise CloudError(
                    "UNAVAILABLE", "The connection was lost before the answer."
                )
            self._record(request, REPEATED if self.world.repeated else OK, account)
            return answer

    def _admitted(self, request: GcpRequest, met: list[GcpFault]) -> str:
        if revoked := first_of(met, RevokeCredential):
            self.world.tokens.refuse(revoked.calls)
        account = self.world.tokens.check(request.token)
        permissions.check(self.world, request.name, request.target, account)
        for fault in met:
            if refusal := fault.refusal(request.host):
                raise refusal
        return account

    def _acted(
        self,
        request: GcpRequest,
        account: str,
        met: list[GcpFault],
        act: Callable[[], _Answer],
    ) -> _Answer:
        world = self.world
        if first_of(met, Vanish):
            interference.vanish(world, request.target)
        if race := first_of(met, EtagRace):
            world.policy.add("roles/viewer", race.member)
        if concurrent := first_of(met, ConcurrentOperation):
            interference.begin_operation(
                world, request.target, concurrent.kind, concurrent.reads
            )
        if first_of(met, ForeignOwner):
            act()
            interference.disown(world, request.target)
        if late := first_of(met, LateEffect):
            self._late.append(_Late(late.later, request, account, act))
            raise CloudError("DEADLINE_EXCEEDED", "Deadline exceeded.")
        world.met, world.repeated, world.caller = met, False, account
        try:
            answer = act()
        finally:
            world.met = []
        if invisible := first_of(met, Invisible):
            world.hidden[request.target] = invisible.reads
        return answer

    def _late_effects(self) -> None:
        for late in self._late:
            late.calls_left -= 1
        due, self._late = (
            [late for late in self._late if late.calls_left < 0],
            [late for late in self._late if late.calls_left >= 0],
        )
        for late in due:
            self.world.repeated = False
            try:
                late.act()
            except CloudError as error:
                # The caller has repeated the call meanwhile.
                self._record(late.request, error.code, late.account)
            else:
                self._record(
                    late.request,
                    REPEATED if self.world.repeated else LATE,
                    late.account,
                )

    def _record(self, request: GcpRequest, outcome: str, account: str) -> None:
        self.world.ledger.add(
            request.service,
            request.method,
            request.target,
            request.message,
            outcome=outcome,
            account=account,
        )

    def finish_late_effects(self) -> None:
        """Apply every pending effect now."""
        with self.lock:
            for late in self._late:
                late.calls_left = 0
            self._late_effects()

    def clear(self) -> None:
        """Forget the pending effects."""
        with self.lock:
            self._late = []
