"""The account of a fake AWS: its number, its region, and the credentials that it accepts."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

PARTITIONS: Mapping[str, str] = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}
"""Partitions of regions by the beginning of their names; all others are in `aws`."""


@dataclass(frozen=True)
class Credential:
    """A key that the account accepts, and as whom it acts. `principal` is the ARN that GetCallerIdentity answers."""

    access_key: str
    secret_key: str = field(repr=False)
    principal: str
    session_token: str | None = field(default=None, repr=False)

    @property
    def text(self) -> str:
        """The credential in the format of a shared-credentials file, as profile `default`."""
        lines = ["[default]", f"aws_access_key_id = {self.access_key}", f"aws_secret_access_key = {self.secret_key}"]
        if self.session_token is not None:
            lines.append(f"aws_session_token = {self.session_token}")
        return "\n".join([*lines, ""])


@dataclass
class Account:
    """One account in one region. Credentials are derived from names, so that two runs have the same ones."""

    number: str
    region: str
    credentials: dict[str, Credential] = field(default_factory=dict)
    revoked: set[str] = field(default_factory=set)

    @property
    def partition(self) -> str:
        """The second part of every ARN."""
        return next((name for prefix, name in PARTITIONS.items() if self.region.startswith(prefix)), "aws")

    def user(self, name: str) -> Credential:
        """Give the credential of an IAM user."""
        return self._add(f"user/{name}", f"arn:{self.partition}:iam::{self.number}:user/{name}", session=False)

    def role_session(self, role: str, session: str = "modelplane") -> Credential:
        """Give a temporary credential of a role; its principal is the session, as GetCallerIdentity answers."""
        principal = f"arn:{self.partition}:sts::{self.number}:assumed-role/{role}/{session}"
        return self._add(f"role/{role}/{session}", principal, session=True)

    def known(self, access_key: str) -> Credential | None:
        """Give the credential with this key, or None where the account has none or has revoked it."""
        return None if access_key in self.revoked else self.credentials.get(access_key)

    def arn(self, service: str, rest: str) -> str:
        """Give the ARN of an object in the region."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.number}:{rest}"

    def _add(self, name: str, principal: str, *, session: bool) -> Credential:
        digest = hashlib.sha256(f"{self.number}/{name}".encode()).hexdigest()
        key = ("ASIA" if session else "AKIA") + digest[:16].upper()
        made = Credential(key, f"secret{digest[16:50]}", principal, f"session{digest}" if session else None)
        return self.credentials.setdefault(key, made)
