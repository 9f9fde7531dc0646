"""Asks an API server what users may do, by SubjectAccessReviews: then roles and bindings of that cluster are the rules here too.

An answer holds for ten seconds, as in other API servers behind an APIService. A server that does not answer allows nothing, and a user who
asks for much, or for what takes long, keeps no other one waiting.
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
"""How long an answer is waited for, the time until it is asked included."""
SILENT_SECONDS = 1.0
"""For how long nothing is asked after a failure, so that a server that is down gets, and the log has, one of many requests."""
_AT_ONCE, _AT_ONCE_OF_ONE = 8, 2
# Of the connection and of the answer; together less than a request waits, so that it is seen why.
_TIMEOUT_SECONDS = (2.0, 7.0)
# With these an API server refuses what it was asked, which says nothing of other users.
_REFUSED_ITSELF = (400, 413, 422)
_ALL = ""
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
        self._asking: dict[tuple[User, Attempt], asyncio.Task[bool]] = {}
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        # Until when nothing is asked for a user of this name, or for all.
        self._silent: dict[str, float] = {}

    async def allows(self, user: User, attempt: Attempt) -> bool:
        """Tell whether a user may do something; who asks the same meanwhile gets the same answer. Raises `Unanswered`."""
        key = (user, attempt)
        self._forget(asyncio.get_running_loop().time())
        if held := self._known.get(key):
            return held[1]
        asking = self._asking.get(key)
        if asking is None:
            self._check_answers(user)
            asking = self._asking[key] = asyncio.create_task(self._decided(user, attempt))
            asking.add_done_callback(lambda done: self._end(key, done))
        # Whoever does not wait any more ends it for nobody else.
        return await asyncio.shield(asking)

    def _end(self, key: tuple[User, Attempt], done: asyncio.Task[bool]) -> None:
        del self._asking[key]
        if not done.cancelled():
            # Those who asked may all be gone; asyncio complains of a failure that nobody has seen.
            done.exception()

    async def _decided(self, user: User, attempt: Attempt) -> bool:
        turns = self._turns.setdefault(user.name, asyncio.Semaphore(_AT_ONCE_OF_ONE))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await turns.acquire()
                # A thread cannot be stopped: the turn ends with it, and not with the time.
                return await asyncio.shield(self._asked(turns, user, attempt))
        except TimeoutError as error:
            self._fall_silent(user.name, f"no answer within {ANSWER_SECONDS:.0f} s")
            raise Unanswered from error

    async def _asked(self, turns: asyncio.Semaphore, user: User, attempt: Attempt) -> bool:
        loop = asyncio.get_running_loop()
        try:
            self._check_answers(user)
            allowed = await loop.run_in_executor(self._threads, self._review, spec_of(user, attempt))
        except Unanswered:
            raise
        except Exception as error:
            # Whatever the library raises, nothing was decided.
            is_about_user = isinstance(error, ApiException) and error.status in _REFUSED_ITSELF
            self._fall_silent(user.name if is_about_user else _ALL, f"{type(error).__name__}: {error}"[:512])
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
        self._silent = {each: until for each, until in self._silent.items() if until > now}
        if name not in self._silent:
            log.warning("the API server does not say what users may do", user=name or "all", problem=problem)
        self._silent[name] = now + SILENT_SECONDS

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
    about = {"verb": attempt.verb, "group": GROUP, "resource": resource, "subresource": subresource, "name": attempt.name}
    namespace = "" if attempt.namespace == ANY else attempt.namespace
    return {
        "user": user.name,
        **({"uid": user.uid} if user.uid else {}),
        "groups": list(user.groups),
        "extra": user.extra_by_key(),
        "resourceAttributes": {key: value for key, value in {**about, "namespace": namespace}.items() if value},
    }


def reviews_by(kubeconfig: str) -> Reviews:
    """Ask the API server of a kubeconfig, or with `in-cluster` that of the cluster in which this runs. Raises `BadKubeconfig`."""
    try:
        configuration = client.Configuration()
        if kubeconfig == IN_CLUSTER:
            config.load_incluster_config(client_configuration=configuration)
        else:
            config.load_kube_config(str(Path(kubeconfig).expanduser()), client_configuration=configuration)
        # Else urllib3 asks three times more, which takes longer than anybody waits.
        configuration.retries = False
        api = client.ApiClient(configuration)
    except config.ConfigException as error:
        raise BadKubeconfig(str(error)[:512]) from error
    except Exception as error:  # noqa: BLE001 - the library checks little of a file, so it fails in many ways
        # What it says may have parts of the file, which has keys.
        raise BadKubeconfig(f"it cannot be read as one ({type(error).__name__})") from None
    authorization = client.AuthorizationV1Api(api)

    def review(spec: dict[str, Any]) -> bool:
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = authorization.create_subject_access_review(body, _request_timeout=_TIMEOUT_SECONDS)
        return bool(answer.status.allowed) and not answer.status.denied

    return Reviews(review)
