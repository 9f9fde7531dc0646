"""The access file: who may come in with which token, and what they may do there.

    users:
    - name: alice
      groups: [ml-team]
      tokenSha256: [<hex of the SHA-256 of the token>]
    rules:
    - groups: [ml-team]
      namespaces: [ml-team]
      resources: [modeldeployments, modelservices]
      verbs: [get, list, watch, create, update, patch, delete]

It has no token, only hashes: whoever reads it cannot come in. It is read again when it changes; one that cannot be read changes nothing.
"""

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from front.access.files import Section, Text, WatchedFile

ANY = "*"
AUTHENTICATED = "system:authenticated"
_TOKEN_MAX = 4096

Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "*"]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class FileUser(Section):
    """A user with tokens; several, so that one can be replaced."""

    name: Text
    groups: tuple[Text, ...] = ()
    token_sha256: Annotated[tuple[Sha256, ...], Field(min_length=1, alias="tokenSha256")]


class Rule(Section):
    """What some users and groups may do. Without `namespaces` it is about the kinds that have none, such as InferenceCluster."""

    users: tuple[Text, ...] = ()
    groups: tuple[Text, ...] = ()
    namespaces: tuple[Text, ...] = ()
    cluster_scoped: bool = False
    resources: Annotated[tuple[Text, ...], Field(min_length=1)]
    verbs: Annotated[tuple[Verb, ...], Field(min_length=1)]


class AccessFile(Section):
    """All of it."""

    users: tuple[FileUser, ...] = ()
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True)
class User:
    """Who asks.

    `extra`, `uid`: what else an API server says of its user, which it needs to decide what this one may do. `is_of_api_server`: it is one
    that has named this user. Others may have any name, as whoever signed their certificate likes, and are none of its users.
    """

    name: str
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()
    uid: str = ""
    is_of_api_server: bool = False

    def extra_by_key(self) -> dict[str, list[str]]:
        """Give `extra` as reviews have it, with all values of each key."""
        found: dict[str, list[str]] = {}
        for key, value in self.extra:
            found.setdefault(key, []).append(value)
        return found


ANYBODY = User("system:anonymous-admin")
"""Whoever asks where there is no access file."""


@dataclass(frozen=True)
class Attempt:
    """What a user wants to do. `namespace` is empty for cluster-scoped kinds, and `*` for all namespaces at once.

    `resource`: the plural, with a subresource after a slash: `modeldeployments/scale`.
    """

    verb: str
    resource: str
    namespace: str
    name: str = ""
    namespaced: bool = True


@dataclass(frozen=True)
class Right:
    """What one rule lets a user do in one namespace.

    `namespaced`: the kinds that are in namespaces; `cluster_scoped`: those that are in none. `resources` and `verbs` are as in the rule.
    """

    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    namespaced: bool
    cluster_scoped: bool

    def has(self, resource: str, *, namespaced: bool) -> bool:
        """Tell whether it is about a resource. `namespaced`: whether that is in namespaces."""
        return (self.namespaced if namespaced else self.cluster_scoped) and _names(self.resources, resource)


EVERYTHING = Right((ANY,), (ANY,), namespaced=True, cluster_scoped=True)
"""The right of everybody where there is no access file."""


class AccessRules:
    """The access file as it was last read."""

    def __init__(self, file: Path) -> None:
        """Read it. Raises `BadAccessFile`."""
        self._file = WatchedFile(file, AccessFile)
        self._use(self._file.content)

    def _use(self, content: AccessFile) -> None:
        self._rules = content.rules
        self._users = {digest: User(user.name, (*user.groups, AUTHENTICATED)) for user in content.users for digest in user.token_sha256}

    def refresh(self) -> str:
        """Read the file again if it has changed; gives what is wrong with it, if it cannot be used."""
        before = self._file.content
        problem = self._file.refresh()
        if self._file.content is not before:
            self._use(self._file.content)
        return problem

    def user_of(self, token: str) -> User | None:
        """Give the user with a token."""
        if not token or len(token) > _TOKEN_MAX:
            return None
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()
        # Compared in constant time, although a hash tells little.
        return next((user for known, user in self._users.items() if hmac.compare_digest(known, digest)), None)

    def allows(self, user: User, attempt: Attempt) -> bool:
        """Tell whether a user may do something."""
        return any(_concerns(rule, user) and _permits(rule, attempt) for rule in self._rules)

    def rights(self, user: User, namespace: str) -> tuple[Right, ...]:
        """Give what a user may do in a namespace, and with the kinds that have none, in the order of the rules."""
        mine = [rule for rule in self._rules if _concerns(rule, user)]
        return tuple(Right(rule.resources, rule.verbs, _has(rule.namespaces, (namespace,)), rule.cluster_scoped) for rule in mine)


def _concerns(rule: Rule, user: User) -> bool:
    return ANY in rule.users or user.name in rule.users or not set(user.groups).isdisjoint(rule.groups)


def _permits(rule: Rule, attempt: Attempt) -> bool:
    scoped = _has(rule.namespaces, (attempt.namespace,)) if attempt.namespaced else rule.cluster_scoped
    return scoped and _has(rule.verbs, (attempt.verb,)) and _names(rule.resources, attempt.resource)


def _names(resources: Iterable[str], wanted: str) -> bool:
    _, _, subresource = wanted.partition("/")
    return _has(resources, (wanted, f"*/{subresource}") if subresource else (wanted,))


def _has(allowed: Iterable[str], wanted: tuple[str, ...]) -> bool:
    held = set(allowed)
    return ANY in held or not held.isdisjoint(wanted)
