"""The access file: users, their token hashes, and their rights.

    users:
    - name: alice
      groups: [ml-team]
      tokenSha256: [<hex of the SHA-256 of the token>]
    rules:
    - groups: [ml-team]
      namespaces: [ml-team]
      resources: [modeldeployments, modelservices]
      verbs: [get, list, watch, create, update, patch, delete]

The file contains hashes instead of tokens, so reading it grants no access. The front
reloads it when it changes, and keeps the previous content if the new one is invalid.
"""

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from front.access.files import FileSection, Text, WatchedFile

ANY = "*"
AUTHENTICATED = "system:authenticated"
_TOKEN_MAX = 4096

Verb = Literal[
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "*",
]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class FileUser(FileSection):
    """A user with one or more token hashes. A second hash allows replacing a token."""

    name: Text
    groups: tuple[Text, ...] = ()
    token_sha256: Annotated[
        tuple[Sha256, ...], Field(min_length=1, alias="tokenSha256")
    ]


class Rule(FileSection):
    """Rights of some users and groups.

    `namespaces` grants access to namespaced kinds, `cluster_scoped` to kinds such as
    InferenceCluster.
    """

    users: tuple[Text, ...] = ()
    groups: tuple[Text, ...] = ()
    namespaces: tuple[Text, ...] = ()
    cluster_scoped: bool = False
    resources: Annotated[tuple[Text, ...], Field(min_length=1)]
    verbs: Annotated[tuple[Verb, ...], Field(min_length=1)]


class AccessFile(FileSection):
    """The content of the access file."""

    users: tuple[FileUser, ...] = ()
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True)
class User:
    """An authenticated user.

    `extra` and `uid` come from an API server, which needs them for its reviews.
    `is_of_api_server` is True if an API server has authenticated the user. A user from
    another source may have the same name as a user of the API server, but the two are
    different users: whoever signs a certificate chooses the name in it.
    """

    name: str
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()
    uid: str = ""
    is_of_api_server: bool = False

    def extra_by_key(self) -> dict[str, list[str]]:
        """Return `extra` in the form of a SubjectAccessReview: all values of each key."""
        found: dict[str, list[str]] = {}
        for key, value in self.extra:
            found.setdefault(key, []).append(value)
        return found


ANYBODY = User("system:anonymous-admin")
"""The user of every request if there is no access file."""


@dataclass(frozen=True)
class Attempt:
    """A request for which a user needs a right.

    `namespace` is empty for cluster-scoped kinds and `*` for all namespaces at once.
    `resource` is the plural, with a subresource after a slash:
    `modeldeployments/scale`.
    """

    verb: str
    resource: str
    namespace: str
    name: str = ""
    namespaced: bool = True


@dataclass(frozen=True)
class PolicyRule:
    """The rights that one rule grants a user in one namespace.

    `namespaced` and `cluster_scoped` state for which scopes the right holds.
    `resources` and `verbs` are copied from the rule.
    """

    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    namespaced: bool
    cluster_scoped: bool

    def has(self, resource: str, *, namespaced: bool) -> bool:
        """Return whether the right covers a resource of the given scope."""
        return (self.namespaced if namespaced else self.cluster_scoped) and _names(
            self.resources, resource
        )


EVERYTHING = PolicyRule((ANY,), (ANY,), namespaced=True, cluster_scoped=True)
"""The right of every user if there is no access file."""


class AccessRules:
    """The access file as it was last read."""

    def __init__(self, file: Path) -> None:
        """Read the file. Raises `BadAccessFile`."""
        self._file = WatchedFile(file, AccessFile)
        self._use(self._file.content)

    def _use(self, content: AccessFile) -> None:
        self._rules = content.rules
        self._users: dict[str, User] = {}
        for each in content.users:
            user = User(each.name, (*each.groups, AUTHENTICATED))
            self._users |= dict.fromkeys(each.token_sha256, user)

    def refresh(self) -> str:
        """Reload the file if it has changed; return its error, or an empty string."""
        before = self._file.content
        problem = self._file.refresh()
        if self._file.content is not before:
            self._use(self._file.content)
        return problem

    def user_of(self, token: str) -> User | None:
        """Return the user whose file entry has the hash of this token."""
        if not token or len(token) > _TOKEN_MAX:
            return None
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()
        # The comparison takes constant time, although a hash reveals little.
        for known, user in self._users.items():
            if hmac.compare_digest(known, digest):
                return user
        return None

    def allows(self, user: User, attempt: Attempt) -> bool:
        return any(
            _concerns(rule, user) and _permits(rule, attempt) for rule in self._rules
        )

    def rights(self, user: User, namespace: str) -> tuple[PolicyRule, ...]:
        """Return the user's rights in a namespace and on cluster-scoped kinds.

        They are in the order of the rules.
        """
        mine = [rule for rule in self._rules if _concerns(rule, user)]
        return tuple(
            PolicyRule(
                rule.resources,
                rule.verbs,
                _has(rule.namespaces, (namespace,)),
                rule.cluster_scoped,
            )
            for rule in mine
        )


def _concerns(rule: Rule, user: User) -> bool:
    return (
        ANY in rule.users
        or user.name in rule.users
        or not set(user.groups).isdisjoint(rule.groups)
    )


def _permits(rule: Rule, attempt: Attempt) -> bool:
    if attempt.namespaced:
        in_scope = _has(rule.namespaces, (attempt.namespace,))
    else:
        in_scope = rule.cluster_scoped
    return (
        in_scope
        and _has(rule.verbs, (attempt.verb,))
        and _names(rule.resources, attempt.resource)
    )


def _names(resources: Iterable[str], wanted: str) -> bool:
    _, _, subresource = wanted.partition("/")
    return _has(resources, (wanted, f"*/{subresource}") if subresource else (wanted,))


def _has(allowed: Iterable[str], wanted: tuple[str, ...]) -> bool:
    held = set(allowed)
    return ANY in held or not held.isdisjoint(wanted)
