"""The syntax of cache sources: Hugging Face repositories, OCI images and buckets.

These texts become parts of URLs, file names and command-line arguments. The grammars
exclude all characters that would end such a part.
"""

import re
from typing import NamedTuple

_REPOSITORY_ID = re.compile(
    r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)?"
)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REVISION = re.compile(r"[A-Za-z0-9._/][A-Za-z0-9._/-]*")
# `$` is excluded: a kubelet expands `$(NAME)` in the environment of a container.
_FILE_PATTERN = re.compile(r"[A-Za-z0-9._/*?\[\]!+=@,~ ()-]+")

# The grammar of the OCI distribution specification, with the host grammar of its
# reference implementation.
_HOST_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = re.compile(
    rf"(?:{_HOST_LABEL})(?:\.{_HOST_LABEL})*(?::(?P<port>[0-9]{{1,5}}))?"
)
_PORT_MAX = 65_535
_PATH = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAME_CHARACTERS_MAX = 255

# The rules of AWS; other servers accept no other names.
_BUCKET = re.compile(r"[a-z0-9](?:[a-z0-9.-]{1,61})[a-z0-9]")
_REGION = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_ENDPOINT = re.compile(rf"https?://{_HOST.pattern}")
# `$` is excluded, as in file patterns.
_PREFIX = re.compile(r"[A-Za-z0-9._!+=@,~() -]+(?:/[A-Za-z0-9._!+=@,~() -]+)*/?")


class ImageReference(NamedTuple):
    """The parts of `[host/]repository[:tag][@digest]`; missing parts are empty."""

    host: str
    repository: str
    tag: str
    digest: str

    @property
    def name(self) -> str:
        """Return host and repository, as written."""
        return f"{self.host}/{self.repository}" if self.host else self.repository


def is_repository_id(text: str) -> bool:
    """Return whether a text is `owner/name` or `name`, as on the Hugging Face hub."""
    return bool(_REPOSITORY_ID.fullmatch(text)) and ".." not in text


def is_revision(text: str) -> bool:
    """Return whether a text can be a branch, a tag or a commit."""
    return bool(_REVISION.fullmatch(text)) and ".." not in text


def is_file_pattern(text: str) -> bool:
    """Return whether a text can select files of a repository, like a shell wildcard."""
    return bool(_FILE_PATTERN.fullmatch(text))


def is_bucket(text: str) -> bool:
    return bool(_BUCKET.fullmatch(text)) and ".." not in text


def is_region(text: str) -> bool:
    """Return whether a text can be a region, such as `eu-central-1` or `auto`."""
    return bool(_REGION.fullmatch(text))


def is_endpoint(text: str) -> bool:
    """Return whether a text is a server's URL: scheme, host and an optional port."""
    found = _ENDPOINT.fullmatch(text)
    return found is not None and is_port(found["port"])


def is_port(text: str | None) -> bool:
    """Return whether digits are a TCP port. None means the scheme's default port."""
    return text is None or 0 < int(text) <= _PORT_MAX


def is_prefix(text: str) -> bool:
    """Return whether a text can be a key prefix: folder names joined by single slashes."""
    return bool(_PREFIX.fullmatch(text)) and not {".", ".."} & set(text.split("/"))


def read_image(text: str) -> ImageReference:
    """Parse an image reference. Raises ValueError with the reason."""
    name, at, digest = text.partition("@")
    first, slash, rest = name.partition("/")
    # As in every registry client, a first part that cannot be a host is part of the
    # repository.
    host, path = (
        (first, rest)
        if slash and (set(".:") & set(first) or first == "localhost")
        else ("", name)
    )
    repository, colon, tag = path.partition(":")
    if host:
        found = _HOST.fullmatch(host)
        if not found:
            raise ValueError(f"{host!r} is not the host of a registry")
        if not is_port(found["port"]):
            raise ValueError(
                f"the port of its host {host!r} must be between 1 and {_PORT_MAX}"
            )
    if not all(map(_PATH.fullmatch, repository.split("/"))):
        raise ValueError(
            "its repository must be lower-case letters and digits, separated by "
            "single '.', '_' or '/', by '__' or by '-'"
        )
    if len(host) + len(repository) >= _NAME_CHARACTERS_MAX:
        raise ValueError(
            f"host and repository must have less than {_NAME_CHARACTERS_MAX} characters"
        )
    if colon and not _TAG.fullmatch(tag):
        raise ValueError(
            "its tag must be up to 128 letters, digits, '.', '_' and '-', without "
            "a leading '.' or '-'"
        )
    if at and not is_digest(digest):
        raise ValueError("its digest must be 'sha256:' and 64 hex digits")
    return ImageReference(host, repository, tag, digest)


def is_commit(text: str) -> bool:
    return bool(_COMMIT.fullmatch(text))


def is_digest(text: str) -> bool:
    return bool(_DIGEST.fullmatch(text))
