"""Parse an AWS credential: profile `default` of a shared-credentials file's text.

The options have AWS's names. A credential is untrusted input: it runs no program, reads
a file only if a setting names it, and uses the worker's own identity only in accounts
that a setting names. All other options that would direct AWS's client elsewhere are
rejected.
"""

import configparser
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from activities.clouds.permitted import PermittedSources
from api_types.errors import CredentialsInvalid

PROFILE = "default"
WORKER = "Worker"
"""The value of `credential_source` for the worker's own identity."""

_BYTES_MAX = 16 << 10
_VALUE_MAX = 8 << 10
_KEY = "aws_access_key_id"
_SECRET = "aws_secret_access_key"  # noqa: S105 - the name of a key
_SESSION = "aws_session_token"
_ROLE, _EXTERNAL = "role_arn", "external_id"
_SOURCE, _SOURCE_PROFILE = "credential_source", "source_profile"
_TOKEN_FILE = "web_identity_token_file"  # noqa: S105 - the name of an option
_INDIRECT = (
    "credential_process",
    "mfa_serial",
    "sso_session",
    "sso_start_url",
    "sso_account_id",
    "login_session",
    "services",
    "endpoint_url",
)
_ROLE_ARN = re.compile(
    r"arn:aws[a-z-]*:iam::([0-9]{12}):role/[\w+=,.@/-]{1,576}", re.ASCII
)
# AWS's pattern for external IDs.
_EXTERNAL_ID = re.compile(r"[\w+=,.@:/-]{2,1224}", re.ASCII)


@dataclass(frozen=True)
class AssumedRole:
    """A role that the credential assumes.

    With `token_file` it is assumed with the token in this file (AssumeRoleWithWebIdentity).
    """

    arn: str
    account: str
    external_id: str = field(default="", repr=False)
    token_file: str = ""


@dataclass(frozen=True)
class AwsCredential:
    """The source of access: keys, or the worker's identity; and the role it assumes.

    Keys are a key with its secret, and a session token if they are temporary. Without
    keys and token file, the worker's own identity is the source. Never printed.
    """

    key: str = ""
    secret: str = field(default="", repr=False)
    session: str | None = field(default=None, repr=False)
    role: AssumedRole | None = None

    @property
    def hidden(self) -> tuple[str, ...]:
        """The texts that no message may contain."""
        external = self.role.external_id if self.role else ""
        return tuple(text for text in (self.secret, self.session, external) if text)

    @property
    def is_of_worker(self) -> bool:
        """Return True if the worker's identity is used, itself or through a token."""
        return not self.key


def read_credential(
    text: str, permitted: PermittedSources | None = None
) -> AwsCredential:
    """Parse the text of a shared-credentials file.

    Without `permitted` nothing of the worker may be used. Raises CredentialsInvalid
    with the problem, and without any secret of the text.
    """
    permitted = permitted or PermittedSources()
    profiles = _profiles(text)
    if PROFILE not in profiles:
        raise _invalid(f"it has no profile [{PROFILE}]")
    values = profiles[PROFILE]
    if indirect := [key for key in _INDIRECT if key in values]:
        raise _invalid(
            f"{indirect[0]} is not supported; use {_ROLE}, or {_KEY} and {_SECRET}"
        )
    role = _role(values, permitted) if _ROLE in values else None
    source = values.get(_SOURCE, "")
    if source and source != WORKER:
        raise _invalid(
            f"{_SOURCE} is not {WORKER}: the worker's own identity is found "
            f"automatically; write {_SOURCE} = {WORKER}"
        )
    if role is None and source:
        _reject(values, f"{_SOURCE} = {WORKER}", _KEY, _SECRET, _SOURCE_PROFILE)
        return AwsCredential()
    if role is None:
        _reject(values, "keys", _SOURCE_PROFILE, _EXTERNAL, _TOKEN_FILE)
        return _keys(PROFILE, values, None)
    _reject(values, _ROLE, _KEY, _SECRET)
    if role.token_file:
        _reject(values, _TOKEN_FILE, _SOURCE, _SOURCE_PROFILE, _EXTERNAL)
    elif name := values.get(_SOURCE_PROFILE, ""):
        _reject(values, _SOURCE_PROFILE, _SOURCE)
        if name == PROFILE or name not in profiles:
            raise _invalid(
                f"{_SOURCE_PROFILE} names no other profile of the text; add the profile "
                f"with {_KEY} and {_SECRET}"
            )
        return _keys(name, profiles[name], role)
    permitted.check_account(role.account, f"{_ROLE} without {_SOURCE_PROFILE}")
    return AwsCredential(role=role)


def _role(values: Mapping[str, str], permitted: PermittedSources) -> AssumedRole:
    arn, external = values[_ROLE], values.get(_EXTERNAL, "")
    named = _ROLE_ARN.fullmatch(arn)
    if named is None:
        raise _invalid(
            f"{_ROLE} is not the ARN of a role, such as arn:aws:iam::111122223333:role/modelplane"
        )
    if external and not _EXTERNAL_ID.fullmatch(external):
        raise _invalid(
            f"{_EXTERNAL} has other characters than letters, digits and +=,.@:/-, or not "
            "2 to 1224 of them"
        )
    file = values.get(_TOKEN_FILE, "")
    if file:
        permitted.check_file(file, _TOKEN_FILE)
    return AssumedRole(arn, named[1], external, file)


def _keys(
    profile: str, values: Mapping[str, str], role: AssumedRole | None
) -> AwsCredential:
    if missing := [key for key in (_KEY, _SECRET) if not values.get(key)]:
        raise _invalid(f"profile [{profile}] has no {missing[0]}")
    for key in (_KEY, _SECRET, _SESSION):
        value = values.get(key, "")
        if (
            len(value) > _VALUE_MAX
            or not value.isascii()
            or not value.isprintable()
            or " " in value
        ):
            raise _invalid(f"{key} is not a key of AWS")
    session = values.get(_SESSION) or None
    return AwsCredential(values[_KEY], values[_SECRET], session, role)


def _reject(values: Mapping[str, str], used: str, *others: str) -> None:
    if both := [each for each in others if each in values]:
        raise _invalid(f"{both[0]} does not go with {used}; remove one of them")


def _profiles(text: str) -> dict[str, dict[str, str]]:
    if len(text.encode(errors="replace")) > _BYTES_MAX:
        raise _invalid(f"it is larger than {_BYTES_MAX >> 10} KiB")
    reader = configparser.ConfigParser(
        interpolation=None,
        default_section="\0",
        comment_prefixes=("#", ";"),
        strict=True,
    )
    try:
        reader.read_string(text)
    except configparser.MissingSectionHeaderError as error:
        raise _invalid(f"line {error.lineno} is before the first [profile]") from None
    except (
        configparser.DuplicateOptionError,
        configparser.DuplicateSectionError,
    ) as error:
        raise _invalid(f"line {error.lineno} repeats a profile or a key") from None
    except configparser.ParsingError as error:
        line = error.errors[0][0] if error.errors else 1
        raise _invalid(f"line {line} is not key = value") from None
    except configparser.Error:
        raise _invalid("it is malformed") from None
    return {
        name: {key: (value or "").strip() for key, value in reader.items(name)}
        for name in reader.sections()
    }


def _invalid(why: str) -> CredentialsInvalid:
    return CredentialsInvalid(
        f"the credential is not the text of a shared-credentials file of AWS: {why}"
    )
