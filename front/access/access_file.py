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

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from api_types.text.reader import Unreadable, read_one

ANY = "*"
AUTHENTICATED = "system:authenticated"
_FILE_BYTES_MAX = 1024 * 1024
_TOKEN_MAX = 4096

Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "*"]
Text = Annotated[str, StringConstraints(min_length=1, max_length=253)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class _Section(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=False, validate_by_alias=True, extra="forbid", frozen=True)


class FileUser(_Section):
    """A user with tokens; several, so that one can be replaced."""

    name: Text
    groups: tuple[Text, ...] = ()
    token_sha256: Annotated[tuple[Sha256, ...], Field(min_length=1, alias="tokenSha256")]


class Rule(_Section):
    """What some users and groups may do. Without `namespaces` it is about the kinds that have none, such as InferenceCluster."""

    users: tuple[Text, ...] = ()
    groups: tuple[Text, ...] = ()
    namespaces: tuple[Text, ...] = ()
    cluster_scoped: bool = False
    resources: Annotated[tuple[Text, ...], Field(min_length=1)]
    verbs: Annotated[tuple[Verb, ...], Field(min_length=1)]


class AccessFile(_Section):
    """All of it."""

    users: tuple[FileUser, ...] = ()
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True)
class User:
    """Who asks."""

    name: str
    groups: tuple[str, ...] = ()


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


class BadAccessFile(ValueError):
    """The access file cannot be used; the text says where it is wrong."""


class AccessRules:
    """The access file as it was last read."""

    def __init__(self, file: Path) -> None:
        """Read it. Raises `BadAccessFile`."""
        self._file = file
        self._stamp = _stamp(file)
        self._use(load(file))

    def _use(self, content: AccessFile) -> None:
        self._rules = content.rules
        self._users = {digest: User(user.name, (*user.groups, AUTHENTICATED)) for user in content.users for digest in user.token_sha256}

    def refresh(self) -> str:
        """Read the file again if it has changed; gives what is wrong with it, if it cannot be used."""
        stamp = _stamp(self._file)
        if stamp == self._stamp:
            return ""
        self._stamp = stamp
        try:
            self._use(load(self._file))
        except BadAccessFile as error:
            return str(error)
        return ""

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


def load(file: Path) -> AccessFile:
    """Read an access file. Raises `BadAccessFile`."""
    try:
        text = file.expanduser().read_bytes()
    except OSError as error:
        raise BadAccessFile(f"{file}: {error.strerror}") from error
    if len(text) > _FILE_BYTES_MAX:
        raise BadAccessFile(f"{file} has {len(text)} bytes; at most {_FILE_BYTES_MAX} are read")
    try:
        return AccessFile.model_validate(read_one(text.decode()) or {})
    except UnicodeDecodeError as error:
        raise BadAccessFile(f"{file} is no text in UTF-8") from error
    except Unreadable as error:
        # Without the text of the line, which may have a token.
        raise BadAccessFile(f"{file} is not YAML: see line {error.line}") from None
    except ValidationError as error:
        # Not the values: a token may have been written in place of its hash.
        places = [f"{'.'.join(map(str, each['loc'])) or 'the file'}: {each['msg']}" for each in error.errors(include_input=False)]
        raise BadAccessFile(f"{file}: {'; '.join(places[:20])}") from error


def _stamp(file: Path) -> tuple[int, int, int]:
    try:
        found = file.expanduser().stat()
    except OSError:
        return (0, 0, 0)
    return found.st_mtime_ns, found.st_size, found.st_ino


def _concerns(rule: Rule, user: User) -> bool:
    return ANY in rule.users or user.name in rule.users or not set(user.groups).isdisjoint(rule.groups)


def _permits(rule: Rule, attempt: Attempt) -> bool:
    scoped = _has(rule.namespaces, (attempt.namespace,)) if attempt.namespaced else rule.cluster_scoped
    plural, _, subresource = attempt.resource.partition("/")
    resources = (attempt.resource, f"*/{subresource}") if subresource else (plural,)
    return scoped and _has(rule.verbs, (attempt.verb,)) and _has(rule.resources, resources)


def _has(allowed: Iterable[str], wanted: tuple[str, ...]) -> bool:
    held = set(allowed)
    return ANY in held or not held.isdisjoint(wanted)
