"""The account of a fake AWS: its number, its region, and its credentials."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PARTITIONS: Mapping[str, str] = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}
"""Partitions by the prefixes of their regions. All other regions are in `aws`."""


@dataclass(frozen=True)
class AccessKey:
    """An access key. `principal` is the ARN that GetCallerIdentity returns for it."""

    access_key: str
    secret_key: str = field(repr=False)
    principal: str
    session_token: str | None = field(default=None, repr=False)

    @property
    def text(self) -> str:
        """The credential in the format of a shared-credentials file, profile `default`."""
        lines = [
            "[default]",
            f"aws_access_key_id = {self.access_key}",
            f"aws_secret_access_key = {self.secret_key}",
        ]
        if self.session_token is not None:
            lines.append(f"aws_session_token = {self.session_token}")
        return "\n".join([*lines, ""])


@dataclass(frozen=True)
class TrustedRole:
    """A role that a principal with an external ID, or a token, may assume."""

    principal: str = ""
    external_id: str = ""
    token: str = field(default="", repr=False)


@dataclass
class Account:
    """One account in one region.

    Credentials are derived from names, so they are the same in every run.
    """

    number: str
    region: str
    credentials: dict[str, AccessKey] = field(default_factory=dict)
    revoked: set[str] = field(default_factory=set)
    roles: dict[str, TrustedRole] = field(default_factory=dict)
    policies: dict[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """Policy documents of limited identities, by `user/NAME` or `role/NAME`."""
    ahead_seconds: float = 0.0
    """The seconds by which AWS's clock is ahead of this machine's."""

    @property
    def partition(self) -> str:
        """The second part of every ARN."""
        return next(
            (
                name
                for prefix, name in PARTITIONS.items()
                if self.region.startswith(prefix)
            ),
            "aws",
        )

    def user(self, name: str) -> AccessKey:
        """Return the credential of an IAM user."""
        return self._add(
            f"user/{name}",
            f"arn:{self.partition}:iam::{self.number}:user/{name}",
            session=False,
        )

    def role_session(self, role: str, session: str = "modelplane") -> AccessKey:
        """Return a temporary credential of a role. Its principal is the session."""
        principal = (
            f"arn:{self.partition}:sts::{self.number}:assumed-role/{role}/{session}"
        )
        return self._add(f"role/{role}/{session}", principal, session=True)

    def now(self) -> float:
        """Return the time of AWS's clock, in seconds since 1970."""
        return time.time() + self.ahead_seconds

    def root(self) -> AccessKey:
        """Return the credential of the root user."""
        arn = f"arn:{self.partition}:iam::{self.number}:root"
        return self._add("root", arn, session=False)

    def policies_of(self, principal: str) -> Sequence[Mapping[str, Any]] | None:
        """Return the policies of a principal, or None if it may do everything."""
        kind, _, name = principal.rpartition(":")[2].partition("/")
        if kind == "assumed-role":
            kind, name = "role", name.partition("/")[0]
        return self.policies.get(f"{kind}/{name}")

    def role_arn(self, role: str) -> str:
        """Return the ARN of a role."""
        return f"arn:{self.partition}:iam::{self.number}:role/{role}"

    def known(self, access_key: str) -> AccessKey | None:
        """Return the credential with this key, or None if it is unknown or revoked."""
        return None if access_key in self.revoked else self.credentials.get(access_key)

    def arn(self, service: str, rest: str) -> str:
        """Return the ARN of an object in the region."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.number}:{rest}"

    def _add(self, name: str, principal: str, *, session: bool) -> AccessKey:
        digest = hashlib.sha256(f"{self.number}/{name}".encode()).hexdigest()
        key = ("ASIA" if session else "AKIA") + digest[:16].upper()
        made = AccessKey(
            key,
            f"secret{digest[16:50]}",
            principal,
            f"session{digest}" if session else None,
        )
        return self.credentials.setdefault(key, made)
