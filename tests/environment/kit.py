"""A replacement for KitOps' `kit`, which is a Go program of another project.

It speaks the registry's real protocol, so tests cover references, logins and digests,
and it unpacks the files of the layers. It runs as a script of its own, so it imports
only the standard library.
"""

import hashlib
import io
import json
import os
import re
import sys
import tarfile
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def unpack(arguments: list[str]) -> None:
    """Run `kit unpack REFERENCE -o -d FOLDER [--plain-http]`."""
    command, reference, *flags = arguments
    assert (command, flags[:2]) == ("unpack", ["-o", "-d"]), arguments
    scheme = "http" if "--plain-http" in flags else "https"
    host, _, rest = reference.partition("/")
    repository, _, digest = rest.partition("@")
    base = f"{scheme}://{host}/v2/{repository}"
    manifest = _get(f"{base}/manifests/{digest}", host)
    assert digest_of(manifest) == digest
    for layer in json.loads(manifest)["layers"]:
        with tarfile.open(
            fileobj=io.BytesIO(_get(f"{base}/blobs/{layer['digest']}", host))
        ) as tar:
            tar.extractall(flags[2], filter="data")


def inspect(arguments: list[str]) -> None:
    """Run `kit inspect --remote REFERENCE [--plain-http]`."""
    command, remote, reference, *flags = arguments
    assert (command, remote) == ("inspect", "--remote"), arguments
    host, _, rest = reference.partition("/")
    repository, _, tag = rest.partition(":")
    scheme = "http" if "--plain-http" in flags else "https"
    manifest = _get(f"{scheme}://{host}/v2/{repository}/manifests/{tag}", host)
    found = {
        "digest": digest_of(manifest),
        "cliVersion": "1.11.0",
        "manifest": json.loads(manifest),
    }
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


def _get(url: str, host: str) -> bytes:
    try:
        return _opened(url, "")
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.UNAUTHORIZED or not os.environ.get("DOCKER_CONFIG"):
            raise
        challenge = error.headers["WWW-Authenticate"]
    config = json.loads((Path(os.environ["DOCKER_CONFIG"]) / "config.json").read_text())
    realm = re.search(r'realm="([^"]+)"', challenge)
    assert realm
    token = json.loads(_opened(realm[1], f"Basic {config['auths'][host]['auth']}"))[
        "token"
    ]
    return _opened(url, f"Bearer {token}")


def _opened(url: str, authorization: str) -> bytes:
    request = urllib.request.Request(  # noqa: S310
        url, headers={"Authorization": authorization} if authorization else {}
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310 -- loopback
        content: bytes = answer.read()
        return content


if __name__ == "__main__":
    try:
        (inspect if sys.argv[1] == "inspect" else unpack)(sys.argv[1:])
    except urllib.error.URLError as failure:
        sys.exit(f"Error: failed to pull: {failure}")
    except OSError as failure:
        # Go's wording of the error.
        reason = os.strerror(failure.errno or 0).lower()
        sys.exit(f"Error: failed to unpack: open {failure.filename}: {reason}")
