"""Authorizes requests with SubjectAccessReviews of an API server.

Roles and bindings of that cluster then apply to the front too. Answers are cached for
ten seconds, as in other aggregated API servers. If the API server does not answer,
nothing is allowed. A user with many or slow reviews does not delay other users.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import structlog
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from api_types.labels import GROUP
from front.access.access_file import ANY, Attempt, User

log = structlog.get_logger("modelplane.front")

IN_CLUSTER = "in-cluster"
HOLDS_SECONDS = 10.0
KEPT_MAX = 10_000
ANSWER_SECONDS = 10.0
"""The time limit for a review, including the time in the queue."""
SILENT_SECONDS = 1.0
"""The pause after a failed review.

It prevents many requests from reaching a broken server and from filling the log.
"""
_AT_ONCE, _AT_ONCE_OF_ONE = 8, 2
# The timeouts of the connection and of the answer. Their sum is less than
# ANSWER_SECONDS, so that the log shows the real cause.
_TIMEOUT_SECONDS = (2.0, 7.0)
# With these codes, the API server rejects a single review. Other users are not
# affected.
_REFUSED_ITSELF = (400, 413, 422)
_ALL = ""
Review = Callable[[dict[str, Any]], bool]


class Unanswered(Exception):
    """The API server did not decide."""


class BadKubeconfig(ValueError):
    """The kubeconfig cannot be used.

    The message says why, without the file's content.
    """


class Reviews:
    """Reviews of one API server, with a cache of its answers."""

    def __init__(self, review: Review) -> None:
        """Set the function that sends the spec of a SubjectAccessReview.

        It may block and raise.
        """
        self._review = review
        self._threads = ThreadPoolExecutor(
            max_workers=_AT_ONCE, thread_name_prefix="reviews"
        )
        # In the order of the answers, so the first entries are the oldest.
        self._known: OrderedDict[tuple[User, Attempt], tuple[float, bool]] = (
            OrderedDict()
        )
        self._asking: dict[tuple[User, Attempt], asyncio.Task[bool]] = {}
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        # The time until which reviews are paused, by user name or for all users.
        self._silent: dict[str, float] = {}

    async def allows(self, user: User, attempt: Attempt) -> bool:
        """Return whether a user may make an attempt.

        Concurrent equal requests share one review. Raises `Unanswered`.
        """
        key = (user, attempt)
        self._forget(asyncio.get_running_loop().time())
        if held := self._known.get(key):
            return held[1]
        asking = self._asking.get(key)
        if asking is None:
            self._check_answers(user)
            asking = self._asking[key] = asyncio.create_task(
                self._decided(user, attempt)
            )
            asking.add_done_callback(lambda done: self._end(key, done))
        # Other callers share the review, so it survives the cancellation of this one.
        return await asyncio.shield(asking)

    def _end(self, key: tuple[User, Attempt], done: asyncio.Task[bool]) -> None:
        del self._asking[key]
        if not done.cancelled():
            # If all callers were cancelled, nobody retrieves the exception, and asyncio
            # would log it.
            done.exception()

    async def _decided(self, user: User, attempt: Attempt) -> bool:
        turns = self._turns.setdefault(user.name, asyncio.Semaphore(_AT_ONCE_OF_ONE))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await turns.acquire()
                # A thread cannot be cancelled, so its slot becomes free when the thread
                # ends, not at the timeout.
                return await asyncio.shield(self._asked(turns, user, attempt))
        except TimeoutError as error:
            self._fall_silent(user.name, f"no answer within {ANSWER_SECONDS:.0f} s")
            raise Unanswered from error

    async def _asked(
        self, turns: asyncio.Semaphore, user: User, attempt: Attempt
    ) -> bool:
        loop = asyncio.get_running_loop()
        try:
            self._check_answers(user)
            allowed = await loop.run_in_executor(
                self._threads, self._review, spec_of(user, attempt)
            )
        except Unanswered:
            raise
        except Exception as error:
            # Whatever exception the library raises, there is no decision.
            is_about_user = (
                isinstance(error, ApiException) and error.status in _REFUSED_ITSELF
            )
            self._fall_silent(
                user.name if is_about_user else _ALL,
                f"{type(error).__name__}: {error}"[:512],
            )
            raise Unanswered from error
        finally:
            turns.release()
        self._known[user, attempt] = (loop.time(), allowed)
        self._known.move_to_end((user, attempt))
        return allowed

    def _check_answers(self, user: User) -> None:
        now = asyncio.get_running_loop().time()
        if any(self._silent.get(name, 0.0) > now for name in (_ALL, user.name)):
            raise Unanswered

    def _fall_silent(self, name: str, problem: str) -> None:
        now = asyncio.get_running_loop().time()
        self._silent = {
            each: until for each, until in self._silent.items() if until > now
        }
        if name not in self._silent:
            log.warning(
                "the API server does not answer access reviews",
                user=name or "all",
                problem=problem,
            )
        self._silent[name] = now + SILENT_SECONDS

    def _forget(self, now: float) -> None:
        while self._known:
            oldest = next(iter(self._known))
            if (
                len(self._known) < KEPT_MAX
                and self._known[oldest][0] > now - HOLDS_SECONDS
            ):
                return
            del self._known[oldest]

    def close(self) -> None:
        """Stop asking."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def spec_of(user: User, attempt: Attempt) -> dict[str, Any]:
    """Return the spec of the SubjectAccessReview for an attempt."""
    resource, _, subresource = attempt.resource.partition("/")
    attributes = {
        "verb": attempt.verb,
        "group": GROUP,
        "resource": resource,
        "subresource": subresource,
        "name": attempt.name,
        "namespace": "" if attempt.namespace == ANY else attempt.namespace,
    }
    spec = {
        "user": user.name,
        "groups": list(user.groups),
        "extra": user.extra_by_key(),
        "resourceAttributes": {key: text for key, text in attributes.items() if text},
    }
    if user.uid:
        spec["uid"] = user.uid
    return spec


def reviews_by(kubeconfig: str) -> Reviews:
    """Return reviews by the API server of a kubeconfig.

    `in-cluster` means the API server of the cluster in which the front runs. Raises
    `BadKubeconfig`.
    """
    try:
        configuration = client.Configuration()
        if kubeconfig == IN_CLUSTER:
            config.load_incluster_config(client_configuration=configuration)
        else:
            config.load_kube_config(
                str(Path(kubeconfig).expanduser()), client_configuration=configuration
            )
        # By default urllib3 retries three times, which takes longer than the caller
        # waits.
        configuration.retries = False
        api = client.ApiClient(configuration)
    except config.ConfigException as error:
        raise BadKubeconfig(str(error)[:512]) from error
    except Exception as error:  # noqa: BLE001 - the library fails in many ways
        # The message of the exception may quote the file, which contains keys.
        raise BadKubeconfig(f"it cannot be parsed ({type(error).__name__})") from None
    authorization = client.AuthorizationV1Api(api)

    def review(spec: dict[str, Any]) -> bool:
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        }
        answer = authorization.create_subject_access_review(
            body, _request_timeout=_TIMEOUT_SECONDS
        )
        return bool(answer.status.allowed) and not answer.status.denied

    return Reviews(review)
