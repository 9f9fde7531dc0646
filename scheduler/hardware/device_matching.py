"""Whether the devices of one node satisfy one member's requests, and which device entries a pod then draws on.

A pod's requests share the counts of the entries, so distinct requests always get distinct devices. The first try is greedy in request
order. When it fails, an exact search looks for any assignment, in which a request may also be covered by several entries that claim
alike (4 + 4 for 8): Kubernetes would allocate those too. Answers are cached per (requests, device set), because thousands of pools
have the same few classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from scheduler.cel import Selector, SelectorError, compile_selector
from scheduler.hardware.assignment import assign_exactly, assign_greedily
from scheduler.model import reasons
from scheduler.model.decision import ResolvedRequest
from scheduler.model.devices import DeviceEntry
from scheduler.model.digests import digest_of
from scheduler.model.inputs import DeviceSet, RequestView
from scheduler.model.rules import MatchRules

# More devices than this do not fit into one ResourceClaim, so Kubernetes never admits the pod.
CLAIM_DEVICES_MAX = 32
# A DRA device is bound to the pod for certain, an extended resource by count only, a synthetic entry not at all.
_PREFERENCE = {"DRA": 0, "DevicePlugin": 1, "Synthetic": 2}


@dataclass(frozen=True, slots=True)
class MemberFit:
    """Whether a member fits a node of a device set.

    `resolved` are the requests that claim something, in request order; `draw` is (entry name, count) for the claims of one
    pod. When it does not fit, `code` and `detail` say why and `request` names the first request that failed.
    """

    fits: bool
    resolved: tuple[ResolvedRequest, ...] = ()
    draw: tuple[tuple[str, int], ...] = ()
    code: str = ""
    detail: str = ""
    request: str = ""


class MemberNeed:
    """The compiled requests of one member; its answers per device set outlive the decision."""

    __slots__ = ("_fits", "digest", "requests", "rules", "selectors")

    def __init__(self, requests: tuple[RequestView, ...], rules: MatchRules) -> None:
        self.requests = requests
        self.rules = rules
        self.digest = need_digest(requests)
        self.selectors: tuple[tuple[Selector, ...], ...] = tuple(
            tuple(compile_selector(text, lenient_calls=rules.lenient_calls, max_cost=rules.max_cost) for text in request.selectors)
            for request in requests
        )
        self._fits: dict[str, MemberFit] = {}

    def fit(self, devices: DeviceSet) -> MemberFit:
        """Match against a device set, regardless of its capacity."""
        known = self._fits.get(devices.digest)
        if known is None:
            known = self._fits[devices.digest] = self._match(devices.entries)
        return known

    def _match(self, entries: tuple[DeviceEntry, ...]) -> MemberFit:
        if not self.requests:
            return MemberFit(fits=True)
        matrix = [[all(s.match(e).matched for s in selectors) for e in entries] for selectors in self.selectors]
        left = [max(entry.count, 0) for entry in entries]
        counts = [request.count for request in self.requests]
        order = list(range(len(entries)))
        if self.rules.prefer_certain_claims:
            order.sort(key=lambda j: (_PREFERENCE.get(entries[j].claim, 2), j))
        taken = assign_greedily(matrix, counts, left, order)
        if taken is None and self.rules.search_assignments:
            groups = [(e.claim, e.device_class, e.resource_name) for e in entries]
            taken = assign_exactly(matrix, counts, left, order, groups)
        if taken is None:
            return self._explain(entries, matrix)
        return self._resolve(entries, taken)

    def _resolve(self, entries: tuple[DeviceEntry, ...], taken: Sequence[Sequence[tuple[int, int]]]) -> MemberFit:
        resolved = []
        draw: dict[str, int] = {}
        claimed = 0
        for request, parts in zip(self.requests, taken, strict=True):
            source = entries[parts[0][0]]
            for j, count in parts if source.claim != "Synthetic" else ():
                draw[entries[j].name] = draw.get(entries[j].name, 0) + count
            if source.claim == "Synthetic":
                continue
            if source.claim == "DRA":
                claimed += request.count
            resolved.append(ResolvedRequest(request.name, source.device_class, request.count, request.selectors, source.resource_name))
        if claimed > CLAIM_DEVICES_MAX and self.rules.limit_claimed_devices:
            detail = f"its requests claim {claimed} devices, and one ResourceClaim holds {CLAIM_DEVICES_MAX}"
            return MemberFit(fits=False, code=reasons.TOO_MANY_DEVICES, detail=detail, request=self.requests[0].name)
        return MemberFit(fits=True, resolved=tuple(resolved), draw=tuple(draw.items()))

    def _explain(self, entries: tuple[DeviceEntry, ...], matrix: list[list[bool]]) -> MemberFit:
        for i, request in enumerate(self.requests):
            if not any(matrix[i]):
                code, detail = self._why_no_entry(i, entries)
                return MemberFit(fits=False, code=code, detail=detail, request=request.name)
            best = self._best_count(entries, matrix[i])
            if best < request.count:
                detail = f"request {request.name} needs {request.count} devices, best {best}"
                return MemberFit(fits=False, code=reasons.DEVICE_COUNT_SHORT, detail=detail, request=request.name)
        detail = "each request fits alone, together they need more devices than a node has"
        return MemberFit(fits=False, code=reasons.DEVICE_CONTENTION, detail=detail, request=self.requests[-1].name)

    def _best_count(self, entries: tuple[DeviceEntry, ...], row: list[bool]) -> int:
        totals: dict[tuple[str, str, str], int] = {}
        for entry, matched in zip(entries, row, strict=True):
            if matched:
                group = (entry.claim, entry.device_class, entry.resource_name)
                size = max(entry.count, 0)
                totals[group] = totals.get(group, 0) + size if self.rules.join_alike_entries else max(totals.get(group, 0), size)
        return max(totals.values(), default=0)

    def _why_no_entry(self, i: int, entries: tuple[DeviceEntry, ...]) -> tuple[str, str]:
        request = self.requests[i]
        if not entries:
            return reasons.SELECTOR_NO_MATCH, f"request {request.name}: the pool has no devices"
        errors: list[str] = []
        for number, matched, failed in self._selector_rows(i, entries):
            errors.extend(failed)
            if not matched and not failed:
                detail = f"request {request.name}: selector {number} matched 0 of {len(entries)} entries"
                return reasons.SELECTOR_NO_MATCH, detail
        if errors:
            code = reasons.DEVICE_MALFORMED if all("malformed" in error for error in errors) else reasons.SELECTOR_ERROR
            return code, f"request {request.name}: {len(errors)} selector errors, first: {errors[0]}"
        return reasons.SELECTOR_NO_MATCH, f"request {request.name}: no entry of {len(entries)} matched all selectors"

    def _selector_rows(self, i: int, entries: tuple[DeviceEntry, ...]) -> Iterator[tuple[int, int, list[str]]]:
        for number, selector in enumerate(self.selectors[i], 1):
            matches = [selector.match(entry) for entry in entries]
            yield number, sum(m.matched for m in matches), [m.error for m in matches if m.error]


@lru_cache(maxsize=10_000)
def member_need(requests: tuple[RequestView, ...], rules: MatchRules) -> MemberNeed:
    """Compile a member's requests; raises SelectorError for the first selector that does not compile."""
    return MemberNeed(requests, rules)


@lru_cache(maxsize=10_000)
def need_digest(requests: tuple[RequestView, ...]) -> str:
    """Digest requests, to see later whether they were edited since a replica was placed."""
    return digest_of([[r.name, r.count, list(r.selectors)] for r in requests]) if requests else ""


def selector_problems(engine: str, role: str, requests: tuple[RequestView, ...], rules: MatchRules) -> list[str]:
    """Name every selector of a member that does not compile, by engine, member, request and number."""
    found = []
    for request in requests:
        for number, text in enumerate(request.selectors, 1):
            try:
                compile_selector(text, lenient_calls=rules.lenient_calls, max_cost=rules.max_cost)
            except SelectorError as error:
                found.append(f"engine {engine}, member {role}, request {request.name}, selector {number}: {error}")
    return found
