"""Whether one node's devices satisfy one member's requests, and which entries it uses.

A pod's requests share the counts of the entries, so distinct requests always get
distinct devices. The first attempt is greedy in request order. If it fails, or takes
devices that Kubernetes does not bind to the pod, an exact search minimises the number
of those devices. In that search several entries with the same kind of claim may satisfy
one request (4 + 4 for 8), because Kubernetes would allocate them too. Answers are
cached per (requests, device set), because thousands of pools have the same few classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice

from api_types.limits import (
    SELECTORS_COST_MAX,
    SELECTORS_REFUSED_MAX,
    cost_problem,
    dearest,
    not_checked,
)
from scheduler.cel import (
    Match,
    Selector,
    SelectorError,
    compile_selector,
    device_problem,
)
from scheduler.cel.bounded_cache import bounded_cache, remember
from scheduler.cel.limits import FLEET_COST_MAX, REQUEST_WORK_MAX
from scheduler.hardware.assignment import assign_exactly, assign_greedily
from scheduler.model import reasons
from scheduler.model.decision import ResolvedDeviceRequest
from scheduler.model.devices import DeviceEntry
from scheduler.model.digests import digest_of
from scheduler.model.inputs import DeviceSet, EngineView, RequestView
from scheduler.model.rules import MatchRules

# Engine, role, request and position of a selector.
Place = tuple[str, str, str, int]

# Kubernetes never admits a pod with more devices than fit into one ResourceClaim.
CLAIM_DEVICES_MAX = 32
# Limit of cached answers per need, which exceeds the number of classes in a fleet. It
# only has an effect if the classes of a fleet are edited for years.
_SETS_KEPT = 4_096
# The steps that one step of the exact search costs, because it copies the assignment.
_WORK_PER_STEP = 50
# The maximum number of characters of a selector in a message, enough to identify it.
_SELECTOR_SHOWN = 160
_NOT_EVALUATED = Match(
    matched=False, error="not evaluated: the selectors before it took too long"
)
# A DRA device is certainly bound to the pod. An extended resource and a slot are only
# counted, and a synthetic entry not even that.
_DOUBT_MAX = 2
_DOUBTS = {"DRA": 0, "DevicePlugin": 1, "Slot": 1, "Synthetic": _DOUBT_MAX}


@dataclass(frozen=True, slots=True)
class MemberFit:
    """Whether a member fits a node of a device set.

    Attributes:
        resolved: requests that claim devices, in request order.
        draw: (entry name, count) for the claims of one pod.
        code: why the member does not fit.
        detail: the same reason as text.
        request: the first request that failed.
        work: work of the evaluation, the same in every process. A member above
            `REQUEST_WORK_MAX` does not fit, whatever the devices are.

    """

    fits: bool
    resolved: tuple[ResolvedDeviceRequest, ...] = ()
    draw: tuple[tuple[str, int], ...] = ()
    code: str = ""
    detail: str = ""
    request: str = ""
    work: int = field(default=0, compare=False)


class _Matcher:
    """Evaluates selectors until the work limit is reached; after that nothing matches."""

    def __init__(self) -> None:
        self.work = 0

    def match(self, selector: Selector, entry: DeviceEntry) -> Match:
        if self.work > REQUEST_WORK_MAX:
            return _NOT_EVALUATED
        verdict = selector.match(entry)
        self.work += verdict.work
        return verdict

    def row(
        self, selectors: Iterable[Selector], entries: Iterable[DeviceEntry]
    ) -> list[bool]:
        """Return per entry whether all selectors match it."""
        return [
            all(self.match(selector, entry).matched for selector in selectors)
            for entry in entries
        ]


class MemberNeed:
    """The compiled requests of one member, with answers cached across decisions."""

    __slots__ = ("_fits", "digest", "requests", "rules", "selectors")

    def __init__(self, requests: tuple[RequestView, ...], rules: MatchRules) -> None:
        self.requests = requests
        self.rules = rules
        self.digest = need_digest(requests)
        self.selectors: tuple[tuple[Selector, ...], ...] = tuple(
            tuple(
                compile_selector(
                    text, lenient_calls=rules.lenient_calls, max_cost=rules.max_cost
                )
                for text in request.selectors
            )
            for request in requests
        )
        self._fits: dict[str, MemberFit] = {}

    def fit(self, devices: DeviceSet) -> MemberFit:
        """Match the requests against a device set, regardless of capacity."""
        known = self._fits.get(devices.digest)
        if known is None:
            matcher = _Matcher()
            found = replace(self._match(devices.entries, matcher), work=matcher.work)
            known = remember(self._fits, devices.digest, found, _SETS_KEPT)
        return known

    def _match(self, entries: tuple[DeviceEntry, ...], matcher: _Matcher) -> MemberFit:
        if not self.requests:
            return MemberFit(fits=True)
        matrix = [matcher.row(selectors, entries) for selectors in self.selectors]
        left = [max(entry.count, 0) for entry in entries]
        counts = [request.count for request in self.requests]
        doubts = [0] * len(entries)
        if self.rules.prefer_certain_claims:
            doubts = [_DOUBTS.get(entry.claim, _DOUBT_MAX) for entry in entries]
        taken = assign_greedily(
            matrix,
            counts,
            left,
            sorted(range(len(entries)), key=lambda j: (doubts[j], j)),
        )
        if self.rules.search_assignments:
            groups = [(e.claim, e.device_class, e.resource_name) for e in entries]
            taken, steps = assign_exactly(
                matrix, counts, left, groups, doubts, known=taken
            )
            matcher.work += steps * _WORK_PER_STEP
        if taken is None:
            return self._explain(entries, matrix, matcher)
        return self._resolve(entries, taken)

    def _resolve(
        self,
        entries: tuple[DeviceEntry, ...],
        taken: Sequence[Sequence[tuple[int, int]]],
    ) -> MemberFit:
        resolved = []
        draw: dict[str, int] = {}
        claimed = 0
        for request, parts in zip(self.requests, taken, strict=True):
            source = entries[parts[0][0]]
            if source.claim == "Synthetic":
                continue
            for j, count in parts:
                draw[entries[j].name] = draw.get(entries[j].name, 0) + count
            if source.claim == "DRA":
                claimed += request.count
            resolved.append(
                ResolvedDeviceRequest(
                    request.name,
                    source.device_class,
                    request.count,
                    request.selectors,
                    source.resource_name,
                )
            )
        if claimed > CLAIM_DEVICES_MAX and self.rules.limit_claimed_devices:
            detail = (
                f"its requests claim {claimed} devices, "
                f"but one ResourceClaim holds at most {CLAIM_DEVICES_MAX}"
            )
            return MemberFit(
                fits=False,
                code=reasons.TOO_MANY_DEVICES,
                detail=detail,
                request=self.requests[0].name,
            )
        return MemberFit(fits=True, resolved=tuple(resolved), draw=tuple(draw.items()))

    def _explain(
        self,
        entries: tuple[DeviceEntry, ...],
        matrix: list[list[bool]],
        matcher: _Matcher,
    ) -> MemberFit:
        for i, request in enumerate(self.requests):
            if not any(matrix[i]):
                code, detail = self._why_no_entry(i, entries, matcher)
                return MemberFit(
                    fits=False, code=code, detail=detail, request=request.name
                )
            best = self._best_count(entries, matrix[i])
            if best < request.count:
                detail = (
                    f"request {request.name} needs {request.count} devices, best {best}"
                )
                return MemberFit(
                    fits=False,
                    code=reasons.DEVICE_COUNT_SHORT,
                    detail=detail,
                    request=request.name,
                )
        detail = "each request fits alone, but together they need more devices than a node has"
        return MemberFit(
            fits=False,
            code=reasons.DEVICE_CONTENTION,
            detail=detail,
            request=self.requests[-1].name,
        )

    def _best_count(self, entries: tuple[DeviceEntry, ...], row: list[bool]) -> int:
        totals: dict[tuple[str, str, str], int] = {}
        for entry, matched in zip(entries, row, strict=True):
            if matched:
                group = (entry.claim, entry.device_class, entry.resource_name)
                size = max(entry.count, 0)
                totals[group] = (
                    totals.get(group, 0) + size
                    if self.rules.join_alike_entries
                    else max(totals.get(group, 0), size)
                )
        return max(totals.values(), default=0)

    def _why_no_entry(
        self, i: int, entries: tuple[DeviceEntry, ...], matcher: _Matcher
    ) -> tuple[str, str]:
        request = self.requests[i]
        if not entries:
            return (
                reasons.SELECTOR_NO_MATCH,
                f"request {request.name}: the pool has no devices",
            )
        errors: list[str] = []
        for number, matched, failed in self._selector_rows(i, entries, matcher):
            errors.extend(failed)
            if not matched and not failed:
                text = shortened(request.selectors[number - 1])
                detail = (
                    f"request {request.name}: selector {number} matched 0 "
                    f"of {len(entries)} entries: {text}"
                )
                return reasons.SELECTOR_NO_MATCH, detail
        problems = [(entry.name, device_problem(entry)) for entry in entries]
        malformed = [(name, problem) for name, problem in problems if problem]
        # Only unreadable devices prevent a match: every error comes from one of them.
        if malformed and set(errors) <= {problem for _, problem in malformed}:
            name, problem = malformed[0]
            return (
                reasons.DEVICE_MALFORMED,
                f"request {request.name}: device {name} of the class cannot be read: {problem}",
            )
        if errors:
            counted = (
                "1 selector error"
                if len(errors) == 1
                else f"{len(errors)} selector errors"
            )
            return (
                reasons.SELECTOR_ERROR,
                f"request {request.name}: {counted}, first: {errors[0]}",
            )
        return (
            reasons.SELECTOR_NO_MATCH,
            f"request {request.name}: no entry of {len(entries)} matched all selectors",
        )

    def _selector_rows(
        self, i: int, entries: tuple[DeviceEntry, ...], matcher: _Matcher
    ) -> Iterator[tuple[int, int, list[str]]]:
        for number, selector in enumerate(self.selectors[i], 1):
            matches = [matcher.match(selector, entry) for entry in entries]
            yield (
                number,
                sum(m.matched for m in matches),
                [m.error for m in matches if m.error],
            )


def shortened(selector: str) -> str:
    """Return a selector on one line; long selectors are cut."""
    line = " ".join(selector.split())
    return line if len(line) <= _SELECTOR_SHOWN else f"{line[: _SELECTOR_SHOWN - 3]}..."


def selectors_length(requests: tuple[RequestView, ...]) -> int:
    """Return the total length of the selectors of requests."""
    return sum(sum(map(len, request.selectors)) for request in requests)


@bounded_cache(lambda requests, _rules: selectors_length(requests))
def member_need(requests: tuple[RequestView, ...], rules: MatchRules) -> MemberNeed:
    """Compile a member's requests.

    Raise SelectorError for the first selector that does not compile.
    """
    return MemberNeed(requests, rules)


@bounded_cache(selectors_length)
def need_digest(requests: tuple[RequestView, ...]) -> str:
    """Return a digest of requests, to detect edits after a replica was placed."""
    return (
        digest_of([[r.name, r.count, list(r.selectors)] for r in requests])
        if requests
        else ""
    )


def selector_problems(engines: Sequence[EngineView], rules: MatchRules) -> list[str]:
    """Return a problem for each selector that does not compile, or for the total cost.

    Admission checks both. This check protects the time of other requests from
    deployments that bypassed admission.
    """
    found: list[str] = []
    # The fleet's policy may raise the cost limit of one selector; the total grows with
    # it.
    cost_max = (
        SELECTORS_COST_MAX * max(rules.max_cost, FLEET_COST_MAX) // FLEET_COST_MAX
    )
    total = 0
    for seen, (at, text) in enumerate(selectors_of(engines), 1):
        try:
            total += compile_selector(
                text, lenient_calls=rules.lenient_calls, max_cost=rules.max_cost
            ).cost
        except SelectorError as error:
            found.append(f"{_place(at)}: {error}")
            if len(found) == SELECTORS_REFUSED_MAX:
                return [*found, not_checked()]
        if total > cost_max:
            return [
                *found,
                cost_problem(
                    _costs(islice(selectors_of(engines), seen), rules), cost_max
                ),
            ]
    return found


def selectors_of(engines: Iterable[EngineView]) -> Iterator[tuple[Place, str]]:
    """Yield every selector with its position."""
    for engine in engines:
        for member in engine.members:
            for request in member.requests:
                for number, text in enumerate(request.selectors, 1):
                    yield (engine.name, member.role, request.name, number), text


def _place(at: Place) -> str:
    engine, role, request, number = at
    return f"engine {engine}, member {role}, request {request}, selector {number}"


def _costs(
    selectors: Iterable[tuple[Place, str]], rules: MatchRules
) -> list[tuple[str, int]]:
    """Return the places and the costs of the selectors that compile."""
    costs = []
    for at, text in selectors:
        with suppress(SelectorError):
            costs.append(
                (
                    _place(at),
                    compile_selector(
                        text, lenient_calls=rules.lenient_calls, max_cost=rules.max_cost
                    ).cost,
                )
            )
    return costs


def work_problem(engines: Sequence[EngineView], rules: MatchRules, devices: int) -> str:
    """Return the problem that the selectors take too much work on the fleet's devices."""
    return (
        f"evaluating the selectors on the {devices} kinds of nodes in this fleet takes "
        f"more than {REQUEST_WORK_MAX} steps, the limit for one deployment; "
        f"simplify {dearest(_costs(selectors_of(engines), rules))}"
    )
