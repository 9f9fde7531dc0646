"""How the sources of a cache are written: repositories of the Hugging Face hub and references of OCI images.

They become parts of addresses, of file names and of arguments of programs, so each is a closed grammar: nothing in it can leave its place.
"""

import re
from typing import NamedTuple

_REPOSITORY_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REVISION = re.compile(r"[A-Za-z0-9._/][A-Za-z0-9._/-]*")
# Without `$`: a kubelet expands `$(NAME)` in the environment of a container.
_FILE_PATTERN = re.compile(r"[A-Za-z0-9._/*?\[\]!+=@,~ ()-]+")

# The grammar of the OCI distribution specification, and that of hosts in the reference implementation.
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*(?::(?P<port>[0-9]{1,5}))?")
_PORT_MAX = 65_535
_PATH = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAME_CHARACTERS_MAX = 255

# As AWS names buckets; other servers take no more.
_BUCKET = re.compile(r"[a-z0-9](?:[a-z0-9.-]{1,61})[a-z0-9]")
_REGION = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_ENDPOINT = re.compile(rf"https?://{_HOST.pattern}")
# Without `$`, as in patterns of files.
_PREFIX = re.compile(r"[A-Za-z0-9._!+=@,~() -]+(?:/[A-Za-z0-9._!+=@,~() -]+)*/?")


class ImageReference(NamedTuple):
    """The parts of `[host/]repository[:tag][@digest]`; those that are not written are empty."""

    host: str
    repository: str
    tag: str
    digest: str

    @property
    def name(self) -> str:
        """Host and repository, as written."""
        return f"{self.host}/{self.repository}" if self.host else self.repository


def is_repository_id(text: str) -> bool:
    """Whether it is `owner/name` or `name`, as the hub takes them."""
    return bool(_REPOSITORY_ID.fullmatch(text)) and ".." not in text


def is_revision(text: str) -> bool:
    """Whether it can be a branch, a tag or a commit."""
    return bool(_REVISION.fullmatch(text)) and ".." not in text


def is_file_pattern(text: str) -> bool:
    """Whether it can select files of a repository, as a shell's wildcards do."""
    return bool(_FILE_PATTERN.fullmatch(text))


def is_bucket(text: str) -> bool:
    """Whether it can be the name of a bucket."""
    return bool(_BUCKET.fullmatch(text)) and ".." not in text


def is_region(text: str) -> bool:
    """Whether it can be the name of a region, such as `eu-central-1` or `auto`."""
    return bool(_REGION.fullmatch(text))


def is_endpoint(text: str) -> bool:
    """Whether it is the address of a server: scheme, host and perhaps port."""
    found = _ENDPOINT.fullmatch(text)
    return found is not None and is_port(found["port"])


def is_port(text: str | None) -> bool:
    """Whether digits are a port of TCP; None, where none is written, is that of the scheme."""
    return text is None or 0 < int(text) <= _PORT_MAX


def is_prefix(text: str) -> bool:
    """Whether keys can begin with it: names of folders, separated by single slashes."""
    return bool(_PREFIX.fullmatch(text)) and not {".", ".."} & set(text.split("/"))


def read_image(text: str) -> ImageReference:
    """Read the reference of an image. Raises ValueError, which says what is wrong."""
    name, at, digest = text.partition("@")
    first, slash, rest = name.partition("/")
    # As every client of registries reads it: a first part that can be no host is a part of the repository.
    host, path = (first, rest) if slash and (set(".:") & set(first) or first == "localhost") else ("", name)
    repository, colon, tag = path.partition(":")
    if host:
        found = _HOST.fullmatch(host)
        if not found:
            raise ValueError(f"{host!r} is not the host of a registry")
        if not is_port(found["port"]):
            raise ValueError(f"the port of its host {host!r} must be between 1 and {_PORT_MAX}")
    if not all(map(_PATH.fullmatch, repository.split("/"))):
        raise ValueError("its repository must be lower-case letters and digits, separated by single '.', '_' or '/', by '__' or by '-'")
    if len(host) + len(repository) >= _NAME_CHARACTERS_MAX:
        raise ValueError(f"host and repository must have less than {_NAME_CHARACTERS_MAX} characters")
    if colon and not _TAG.fullmatch(tag):
        raise ValueError("its tag must be up to 128 letters, digits, '.', '_' and '-', without a leading '.' or '-'")
    if at and not is_digest(digest):
        raise ValueError("its digest must be 'sha256:' and 64 hex digits")
    return ImageReference(host, repository, tag, digest)


def is_commit(text: str) -> bool:
    """Whether it is the hash of a commit."""
    return bool(_COMMIT.fullmatch(text))


def is_digest(text: str) -> bool:
    """Whether it is the digest of a manifest."""
    return bool(_DIGEST.fullmatch(text))
