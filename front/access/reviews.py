"""Asks an API server what users may do, by SubjectAccessReviews: then roles and bindings of that cluster are the rules here too.

An answer holds for ten seconds, as in other API servers behind an APIService. A server that does not answer allows nothing.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import structlog
from kubernetes import client, config

from api_types.labels import GROUP
from front.access.access_file import ANY, Attempt, User

log = structlog.get_logger("modelplane.front")

IN_CLUSTER = "in-cluster"
HOLDS_SECONDS = 10.0
KEPT_MAX = 10_000
_AT_ONCE = 8
_TIMEOUT_SECONDS = (5.0, 10.0)
Review = Callable[[dict[str, Any]], bool]


class Unanswered(Exception):
    """The API server that decides did not answer."""


class BadKubeconfig(ValueError):
    """The kubeconfig cannot be used; the text says why, without its content."""


class Reviews:
    """Decides by what an API server says, and remembers that for a while."""

    def __init__(self, review: Review) -> None:
        """`review`: asks about one spec of a SubjectAccessReview; it may block. Raises what `kubernetes` raises."""
        self._review = review
        self._threads = ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="reviews")
        # In the order in which they were asked, so the first ones are the oldest.
        self._known: OrderedDict[tuple[User, Attempt], tuple[float, bool]] = OrderedDict()

    async def allows(self, user: User, attempt: Attempt) -> bool:
        """Tell whether a user may do something. Raises `Unanswered`."""
        loop = asyncio.get_running_loop()
        self._forget(loop.time())
        if held := self._known.get((user, attempt)):
            return held[1]
        try:
            allowed = await loop.run_in_executor(self._threads, self._review, spec_of(user, attempt))
        except Exception as error:
            # Whatever the library raises, nothing was decided.
            log.warning("the API server does not say what users may do", problem=f"{type(error).__name__}: {error}"[:512])
            raise Unanswered from error
        self._known[user, attempt] = (loop.time(), allowed)
        self._known.move_to_end((user, attempt))
        return allowed

    def _forget(self, now: float) -> None:
        while self._known:
            oldest = next(iter(self._known))
            if len(self._known) < KEPT_MAX and self._known[oldest][0] > now - HOLDS_SECONDS:
                return
            del self._known[oldest]

    def close(self) -> None:
        """Ask no more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def spec_of(user: User, attempt: Attempt) -> dict[str, Any]:
    """Write what is asked as the spec of a SubjectAccessReview."""
    resource, _, subresource = attempt.resource.partition("/")
    extra: dict[str, list[str]] = {}
    for key, value in user.extra:
        extra.setdefault(key, []).append(value)
    about = {"verb": attempt.verb, "group": GROUP, "resource": resource, "subresource": subresource, "name": attempt.name}
    namespace = "" if attempt.namespace == ANY else attempt.namespace
    return {
        "user": user.name,
        "groups": list(user.groups),
        "extra": extra,
        "resourceAttributes": {key: value for key, value in {**about, "namespace": namespace}.items() if value},
    }


def reviews_by(kubeconfig: str) -> Reviews:
    """Ask the API server of a kubeconfig, or with `in-cluster` that of the cluster in which this runs. Raises `BadKubeconfig`."""
    try:
        if kubeconfig == IN_CLUSTER:
            configuration = client.Configuration()
            config.load_incluster_config(client_configuration=configuration)
            api = client.ApiClient(configuration)
        else:
            api = config.new_client_from_config(str(Path(kubeconfig).expanduser()))
    except config.ConfigException as error:
        raise BadKubeconfig(str(error)[:512]) from error
    authorization = client.AuthorizationV1Api(api)

    def review(spec: dict[str, Any]) -> bool:
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = authorization.create_subject_access_review(body, _request_timeout=_TIMEOUT_SECONDS)
        return bool(answer.status.allowed) and not answer.status.denied

    return Reviews(review)
