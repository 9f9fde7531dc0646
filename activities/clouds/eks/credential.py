"""The credential of an AWS account: the text of a shared-credentials file, of which profile `default` is read.

Only keys that stand in the text are used. What would have AWS's client ask elsewhere (another role, a program, a metadata service) is
refused: a credential is input, and input runs no commands and becomes nobody else.
"""

import configparser
from dataclasses import dataclass, field

from api_types.errors import CredentialsInvalid

PROFILE = "default"

_BYTES_MAX = 16 << 10
_VALUE_MAX = 8 << 10
_KEY = "aws_access_key_id"
_SECRET = "aws_secret_access_key"  # noqa: S105 - the name of a key
_SESSION = "aws_session_token"
_INDIRECT = (
    "role_arn",
    "source_profile",
    "credential_source",
    "credential_process",
    "web_identity_token_file",
    "sso_session",
    "sso_start_url",
    "sso_account_id",
    "login_session",
)


@dataclass(frozen=True)
class AwsCredential:
    """A key with its secret; a temporary one has a session token too. Never printed."""

    key: str
    secret: str = field(repr=False)
    session: str | None = field(default=None, repr=False)

    @property
    def hidden(self) -> tuple[str, ...]:
        """The texts that no message may have."""
        return tuple(text for text in (self.secret, self.session) if text)


def read_credential(text: str) -> AwsCredential:
    """Read the text of a shared-credentials file. Raises CredentialsInvalid, which says what is wrong and quotes nothing."""
    if len(text.encode(errors="replace")) > _BYTES_MAX:
        raise _invalid(f"it is larger than {_BYTES_MAX >> 10} KiB")
    reader = configparser.ConfigParser(interpolation=None, default_section="\0", comment_prefixes=("#", ";"), strict=True)
    try:
        reader.read_string(text)
    except configparser.MissingSectionHeaderError as error:
        raise _invalid(f"line {error.lineno} is before the first [profile]") from None
    except (configparser.DuplicateOptionError, configparser.DuplicateSectionError) as error:
        raise _invalid(f"line {error.lineno} repeats a profile or a key") from None
    except configparser.ParsingError as error:
        raise _invalid(f"line {error.errors[0][0] if error.errors else 1} is not key = value") from None
    except configparser.Error:
        raise _invalid("it cannot be read") from None
    if not reader.has_section(PROFILE):
        raise _invalid(f"it has no profile [{PROFILE}]")
    values = {key: value.strip() for key, value in reader.items(PROFILE)}
    if indirect := [key for key in _INDIRECT if key in values]:
        raise _invalid(f"{indirect[0]} is not followed; write {_KEY} and {_SECRET}")
    if missing := [key for key in (_KEY, _SECRET) if not values.get(key)]:
        raise _invalid(f"profile [{PROFILE}] has no {missing[0]}")
    for key in (_KEY, _SECRET, _SESSION):
        value = values.get(key, "")
        if len(value) > _VALUE_MAX or not value.isascii() or not value.isprintable() or " " in value:
            raise _invalid(f"{key} is not a key of AWS")
    return AwsCredential(values[_KEY], values[_SECRET], values.get(_SESSION) or None)


def _invalid(why: str) -> CredentialsInvalid:
    return CredentialsInvalid(f"the credential is not the text of a shared-credentials file of AWS: {why}")
