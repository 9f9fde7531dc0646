"""The webhook: a signed request for a replica count."""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

from api_types.validation.manifests import InvalidManifest, admit_scale
from front.access.signing import WINDOW_SECONDS, Signed
from front.scaling.fields import Fields
from front.serving import errors
from front.serving.requests import Resource
from front.store.projection import Tree

REPLICAS, REASON = "replicas", "reason"
_REASON_BYTES_MAX = 512
_ANSWERS_MAX = 10_000
# The time of a request may be ahead of ours by the window, and it is taken for as long after that.
_KEPT_SECONDS = 2 * WINDOW_SECONDS


@dataclass(frozen=True)
class Wanted:
    """A replica count, and why."""

    replicas: int
    reason: str


def read_wanted(resource: Resource, tree: Tree) -> Wanted:
    """Read the body of a request. Raises `Refused`."""
    fields = Fields(tree, resource.info.group, resource.info.kind, resource.name, (REPLICAS, REASON))
    count = 0
    if tree.get(REPLICAS) is None:
        fields.problem(REPLICAS, "required field is missing; write the number of replicas")
    else:
        try:
            count = admit_scale(resource.namespace, resource.name, tree[REPLICAS])
        except InvalidManifest as refusal:
            for problem in refusal.problems:
                fields.problem(REPLICAS, problem.problem)
    reason = fields.text(REASON, bytes_max=_REASON_BYTES_MAX)
    fields.check()
    return Wanted(count, reason)


def request_id_of(signed: Signed) -> str:
    """Give the id by which the deployment's workflow knows a repeat, also one that another front gets."""
    return "webhook-" + hashlib.sha256(f"{signed.user.name}\0{signed.request_id}".encode()).hexdigest()[:40]


class Answers:
    """What was answered to each request of the last minutes, so that a repeat gets the same answer and changes nothing.

    The deployment's workflow remembers the last requests too, for other fronts and after a restart; this one does however many there are.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], tuple[float, bytes, Tree]] = OrderedDict()

    def earlier(self, signed: Signed, content: bytes, now: float) -> Tree | None:
        """Give the answer to a request that was made before. Raises `Refused` (409) if its id was used for another request.

        `content`: all that is requested; `now`: seconds since 1970.
        """
        kept = self._kept.get((signed.user.name, signed.request_id))
        if kept is None or kept[0] + _KEPT_SECONDS < now:
            return None
        if kept[1] != hashlib.sha256(content).digest():
            raise errors.Refused(409, "Conflict", f"the request id {signed.request_id} was used for another request; choose a new one")
        return kept[2]

    def keep(self, signed: Signed, content: bytes, answer: Tree, now: float) -> None:
        """Note an answer."""
        self._kept[(signed.user.name, signed.request_id)] = (now, hashlib.sha256(content).digest(), answer)
        while self._kept:
            oldest, (since, _, _) = next(iter(self._kept.items()))
            if len(self._kept) <= _ANSWERS_MAX and since + _KEPT_SECONDS >= now:
                return
            del self._kept[oldest]
