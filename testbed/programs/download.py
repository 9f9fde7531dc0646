"""Downloads of official releases, which stop at the first unreachable host.

A machine without access to the release hosts must not wait for a timeout per program.
The first unreachable host ends all downloads of this run, and the caller builds from
source.
"""

import hashlib
import platform
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import httpx

from testbed.programs.versions import Download, Tool

CONNECT_SECONDS = 3.0
READ_SECONDS = 30.0
CHUNK_BYTES = 1 << 20


class DownloadRefused(Exception):
    """A downloaded file does not match its checksum.

    There is no fallback, because it may be an attack.
    """


class Downloader:
    """Downloads of one run. After an unreachable host it downloads nothing more."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._closed = False

    def fetch(self, tool: Tool, folder: Path) -> bool:
        """Put every program of `tool` into `folder`.

        Return False if the download is not possible, so that the caller must build the
        programs. Raise DownloadRefused if a published checksum does not match.
        """
        if tool.download is None or self._closed:
            return False
        timeout = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
        try:
            with httpx.Client(timeout=timeout, follow_redirects=True) as client:
                for binary in tool.packages:
                    self._fetch_one(client, tool.download, tool.version, binary, folder)
        except httpx.TransportError as error:
            self._closed = True
            self._say(
                f"{tool.name} {tool.version}: the official download is not reachable "
                f"({error}); this run downloads nothing more"
            )
            return False
        except httpx.HTTPStatusError as error:
            self._say(
                f"{tool.name} {tool.version}: official download answered "
                f"{error.response.status_code}"
            )
            return False
        return True

    def _fetch_one(
        self,
        client: httpx.Client,
        download: Download,
        version: str,
        binary: str,
        folder: Path,
    ) -> None:
        facts = {
            "version": version,
            "arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(
                platform.machine(), platform.machine()
            ),
            "binary": binary,
        }
        url = download.url.format(**facts)
        self._say(f"{binary} {version}: downloading")
        published = (
            client.get(download.checksum_url.format(**facts)).raise_for_status().text
        )
        # The file is outside the folder, so a failed download leaves nothing among the
        # programs.
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            file, digest = Path(scratch) / binary, hashlib.sha256()
            with client.stream("GET", url) as answer, file.open("wb") as out:
                for chunk in answer.raise_for_status().iter_bytes(CHUNK_BYTES):
                    digest.update(chunk)
                    out.write(chunk)
            if digest.hexdigest() != (
                wanted := published_digest(published, url.rsplit("/", 1)[-1])
            ):
                raise DownloadRefused(
                    f"{url}: sha256 is {digest.hexdigest()}, published is "
                    f"{wanted}; the file was not used"
                )
            target = folder / binary
            if download.member is None:
                file.rename(target)
            else:
                with tarfile.open(file) as archive:
                    member = archive.extractfile(download.member.format(**facts))
                    if member is None:
                        raise DownloadRefused(
                            f"{url}: {download.member.format(**facts)} in it is not a file"
                        )
                    target.write_bytes(member.read())
        target.chmod(0o755)


def published_digest(text: str, name: str) -> str | None:
    """Return the digest of `name` from a checksum file.

    The file contains a single digest, or lines with digest and file name.
    """
    for line in text.splitlines():
        words = line.split()
        if len(words) == 1 or (
            words and words[-1].lstrip("*").rsplit("/", 1)[-1] == name
        ):
            return words[0].lower()
    return None
