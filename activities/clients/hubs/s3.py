"""Pin the content of an S3 bucket: list a prefix with signed requests.

A tenant names the server, so requests follow the rules of `outward`. The SDK would
connect to any address.
"""

import re
from collections.abc import Sequence
from http import HTTPStatus
from urllib.parse import quote, unquote_plus, urlencode, urlsplit
from xml.etree import ElementTree as ET

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from activities.clients.hubs.huggingface import error_for
from activities.clients.outward.addresses import AddressRules
from activities.clients.outward.redaction import without_credential
from activities.clients.outward.requests import (
    HostRefused,
    HttpResponse,
    OutwardClient,
    no_usable_answer,
)
from activities.render.cache.artifact import Artifact, BucketFolder
from activities.render.cache.hydration.s3 import (
    File,
    Login,
    file_name,
    listing_digest,
    read_login,
)
from api_types.errors import (
    CredentialsInvalid,
    InvalidInput,
    ModelplaneError,
    ServerError,
    Unsupported,
)
from api_types.setting_types import Network

# A page has up to 1000 objects. A key has up to 1024 bytes, each encoded in three
# characters. An object has about ten elements.
_PAGE_BYTES_MAX = 8 << 20
_PAGE_OBJECTS_MAX = 1000
_ELEMENTS_MAX = 30 * _PAGE_OBJECTS_MAX
_KEY_CHARACTERS_MAX = 1024
_PART_CHARACTERS = 64 << 10
PAGES_MAX = 20
_CODE = re.compile(r"[A-Za-z0-9]{1,64}")
_ELSEWHERE = frozenset(
    {
        "PermanentRedirect",
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException",
    }
)


class S3Buckets:
    """Any server with the S3 protocol.

    A cache names it.

    `private` are non-public networks in which servers may be.
    """

    def __init__(
        self, private: Sequence[Network] = (), *, allow_plain_http: bool = False
    ) -> None:
        self._client = OutwardClient(AddressRules(private=tuple(private)))
        self._allow_plain_http = allow_plain_http

    async def resolve(self, artifact: Artifact, credential: str) -> str:
        """Return the digest of the listing below the prefix.

        `credential` is a credentials file, or empty for a public bucket.
        """
        folder = artifact.folder
        if folder is None:
            raise InvalidInput(f"{artifact.origin} is not a bucket")
        if artifact.plain_http and not self._allow_plain_http:
            raise Unsupported(
                f"{artifact.origin}: an endpoint without TLS is refused unless the "
                "operator sets s3.allowPlainHttp"
            )
        try:
            login = read_login(credential) if credential else None
        except ValueError as error:
            raise CredentialsInvalid(
                f"the credentials for {artifact.origin} cannot be read: {error}"
            ) from None
        files: list[File] = []
        token = ""
        for _ in range(PAGES_MAX):
            page = await self._page(folder, artifact, login, token)
            files += page.files
            token = page.next_token
            if not token:
                break
        else:
            raise InvalidInput(
                f"{artifact.origin} has more than {PAGES_MAX * _PAGE_OBJECTS_MAX} "
                "objects: name the folder of the model as prefix"
            )
        if not files:
            raise InvalidInput(f"no object is below {artifact.origin}")
        return listing_digest(files)

    async def _page(
        self, folder: BucketFolder, artifact: Artifact, login: Login | None, token: str
    ) -> "_Page":
        url = _url(folder, token)
        host = urlsplit(folder.endpoint).netloc
        try:
            headers = _signed(url, folder, login)
            plain = artifact.plain_http
            answer = await self._client.get(
                url, headers, size_max=_PAGE_BYTES_MAX, plain_http=plain, encoded=True
            )
        except HostRefused as error:
            raise Unsupported(
                f"{artifact.origin}: the worker does not connect to {host}: {error}"
            ) from None
        try:
            found = _parsed(answer)
        except ValueError as error:
            raise no_usable_answer(host, f"status {answer.status}: {error}") from None
        if answer.status != HTTPStatus.OK:
            raise _error(
                answer, found, host, artifact, with_credential=login is not None
            )
        try:
            return _Page(found, folder.prefix, artifact)
        except InvalidInput as error:
            # The message quotes a key, which the server may have built from the
            # request.
            raise InvalidInput(
                without_credential(
                    error.message, f"token {login.token}" if login else ""
                )
            ) from None


class _Page:
    """A page of a listing.

    Raises InvalidInput for an object that cannot be a file, and ServerError for an
    invalid listing.
    """

    def __init__(self, found: ET.Element, prefix: str, artifact: Artifact) -> None:
        self.files: list[File] = []
        decode = unquote_plus if found.findtext("{*}EncodingType") == "url" else str
        items = found.findall("{*}Contents")
        if len(items) > _PAGE_OBJECTS_MAX:
            raise ServerError(
                f"the listing of {artifact.origin} has a page of more than "
                f"{_PAGE_OBJECTS_MAX} objects"
            )
        try:
            for item in items:
                key = decode(_text(item, "Key"))
                size, etag = int(_text(item, "Size")), _text(item, "ETag")
                if len(key) > _KEY_CHARACTERS_MAX:
                    raise ServerError(
                        f"the listing of {artifact.origin} has a key of more than "
                        f"{_KEY_CHARACTERS_MAX} characters"
                    )
                try:
                    name = file_name(key, prefix)
                except ValueError as error:
                    raise InvalidInput(f"{artifact.origin}: {error}") from None
                if name:
                    self.files.append(File(name, size, etag, key))
        except ValueError:
            raise ServerError(
                f"the listing of {artifact.origin} has an object without key, size or ETag"
            ) from None
        truncated = found.findtext("{*}IsTruncated") == "true"
        self.next_token = ""
        if truncated:
            self.next_token = found.findtext("{*}NextContinuationToken") or ""
        if truncated and not self.next_token:
            raise ServerError(
                f"the listing of {artifact.origin} is truncated, "
                "but has no continuation token"
            )


def _url(folder: BucketFolder, token: str) -> str:
    parts = urlsplit(folder.endpoint)
    if folder.path_style:
        host, path = parts.netloc, f"/{folder.bucket}"
    else:
        host, path = f"{folder.bucket}.{parts.netloc}", "/"
    query = {"encoding-type": "url", "list-type": "2", "prefix": folder.prefix}
    if token:
        query["continuation-token"] = token
    encoded = urlencode(sorted(query.items()), quote_via=quote, safe="")
    return f"{parts.scheme}://{host}{path}?{encoded}"


def _signed(url: str, folder: BucketFolder, login: Login | None) -> dict[str, str]:
    """Return the headers of a request, or none for an anonymous one."""
    if login is None:
        return {}
    request = AWSRequest(method="GET", url=url)
    S3SigV4Auth(
        Credentials(login.key_id, login.secret, login.token or None),
        "s3",
        folder.region,
    ).add_auth(request)
    return dict(request.headers.items())


class _FewElements(ET.TreeBuilder):
    """A tree builder that raises ValueError when the tree grows too large.

    An element takes hundreds of bytes of memory, but may be written in four.
    """

    def __init__(self) -> None:
        super().__init__()
        self._elements = 0

    def start(self, tag: str, attrs: dict[str, str], /) -> ET.Element:
        self._elements += 1
        if self._elements > _ELEMENTS_MAX:
            raise ValueError(f"XML with more than {_ELEMENTS_MAX} elements")
        return super().start(tag, attrs)


def _parsed(answer: HttpResponse) -> ET.Element:
    """Return the parsed XML.

    Raises ValueError, also for a document type. Without a document type the XML cannot
    define entities. It is always decoded as UTF-8, because a document type in another
    encoding would not be detected.
    """
    text = answer.body.decode()
    if "<!" in text:
        raise ValueError("XML with a document type")
    parser = ET.XMLParser(target=_FewElements())  # noqa: S314 -- no DTD, limited size
    try:
        # Feed the text in parts, because the parser processes all text of one call even
        # after an exception.
        for at in range(0, len(text), _PART_CHARACTERS):
            parser.feed(text[at : at + _PART_CHARACTERS])
        found: ET.Element = parser.close()
    except ET.ParseError as error:
        raise ValueError(f"not XML: {error}") from None
    return found


def _error(
    answer: HttpResponse,
    found: ET.Element,
    host: str,
    artifact: Artifact,
    *,
    with_credential: bool,
) -> ModelplaneError:
    """Return the error for a response without a listing.

    The error has details only if the response has the form of an S3 error.
    """
    code = found.findtext("{*}Code") or ""
    if not found.tag.endswith("Error") or not _CODE.fullmatch(code):
        return no_usable_answer(host, f"status {answer.status}")
    if code in _ELSEWHERE and artifact.folder:
        return InvalidInput(
            f"{artifact.origin} is not in region {artifact.folder.region} "
            f"of {host} ({code})"
        )
    known = error_for(answer, host, artifact.origin, with_credential=with_credential)
    return known or no_usable_answer(host, f"status {answer.status}: {code}")


def _text(item: ET.Element, name: str) -> str:
    text = item.findtext(f"{{*}}{name}")
    if not text:
        raise ValueError(name)
    return text
