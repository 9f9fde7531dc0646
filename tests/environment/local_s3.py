"""An S3 server on loopback: moto behind a gate.

moto checks signatures as AWS does. The gate records requests and breaks responses.
"""

import contextlib
import json
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import boto3
from moto.core import enable_iam_authentication
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from tests.environment.http_server import SECONDS_TO_NOTICE_ITS_END

REGION = "us-east-1"
_CHUNK = 64 << 10


@dataclass
class LocalS3:
    """The server and its requests.

    `cut_after` breaks the next longer response after so many bytes. The gate calls
    `on_bytes` before it sends each chunk.
    """

    address: str = ""
    requests: list[str] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)
    cut_after: int = 0
    on_bytes: Callable[[], None] | None = None

    def put(
        self, bucket: str, files: Mapping[str, bytes], *, acl: str = "private"
    ) -> None:
        """Put objects into a bucket; create the bucket if it does not exist."""
        s3 = self.administrator("s3")
        s3.create_bucket(Bucket=bucket)
        for key, content in files.items():
            s3.put_object(Bucket=bucket, Key=key, Body=content, ACL=acl)

    def login(self, bucket: str) -> str:
        """Create a key for one bucket only and return its credentials file."""
        iam, user = self.administrator("iam"), f"user-{secrets.token_hex(4)}"
        iam.create_user(UserName=user)
        allowed = {
            "Effect": "Allow",
            "Action": "s3:*",
            "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"],
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
        iam.put_user_policy(UserName=user, PolicyName="read", PolicyDocument=policy)
        key = iam.create_access_key(UserName=user)["AccessKey"]
        return (
            "[default]\n"
            f"aws_access_key_id = {key['AccessKeyId']}\n"
            f"aws_secret_access_key = {key['SecretAccessKey']}\n"
        )

    def administrator(self, service: str) -> Any:
        """Return a client with all permissions, as long as moto checks no signatures."""
        session = boto3.session.Session(
            aws_access_key_id="admin",
            aws_secret_access_key="admin",  # noqa: S106 -- made up
        )
        return session.client(service, endpoint_url=self.address, region_name=REGION)

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Check signatures and permissions during the block."""
        with enable_iam_authentication():
            yield

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Forward a request to moto and return the response."""
        self.requests.append(
            f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{environ['QUERY_STRING']}"
        )
        if wanted := environ.get("HTTP_RANGE"):
            self.ranges.append(wanted)
        body = b"".join(_APPLICATION(environ, start_response))
        cut, end = self.cut_after, len(body)
        if cut and end > cut:
            self.cut_after, end = 0, cut
        return self._sent(body, end)

    def _sent(self, body: bytes, end: int) -> Iterator[bytes]:
        for start in range(0, end, _CHUNK):
            if self.on_bytes:
                self.on_bytes()
            yield body[start : min(start + _CHUNK, end)]
        if end < len(body):
            raise ConnectionAbortedError("broken, as the test wants it")


_APPLICATION = DomainDispatcherApplication(create_backend_app)


@contextlib.contextmanager
def local_s3() -> Iterator[LocalS3]:
    """Serve buckets on a free port."""
    gate = LocalS3()
    server = make_server("127.0.0.1", 0, gate, threaded=True)
    thread = threading.Thread(
        target=server.serve_forever, args=(SECONDS_TO_NOTICE_ITS_END,), daemon=True
    )
    thread.start()
    gate.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield gate
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
