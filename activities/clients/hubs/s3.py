"""A bucket of S3, as far as pinning its content needs it: the listing below a prefix, with signed requests.

A tenant names the server, so it is reached under the rules of `outward`; the SDK would connect to any address.
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
from activities.clients.outward.requests import Answer, HostRefused, OutwardClient, no_usable_answer
from activities.render.cache.artifact import Artifact, BucketFolder
from activities.render.cache.hydration.s3 import File, Login, file_name, listing_digest, read_login
from api_types.errors import CredentialsInvalid, InvalidInput, ModelplaneError, ServerError, Unsupported
from api_types.settings import Network

# A page has up to 1000 objects, whose keys have up to 1024 bytes, three characters each. An object has some ten elements.
_PAGE_BYTES_MAX = 8 << 20
_PAGE_OBJECTS_MAX = 1000
_ELEMENTS_MAX = 30 * _PAGE_OBJECTS_MAX
_KEY_CHARACTERS_MAX = 1024
_PART_CHARACTERS = 64 << 10
PAGES_MAX = 20
_CODE = re.compile(r"[A-Za-z0-9]{1,64}")
_ELSEWHERE = frozenset({"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"})


class S3Buckets:
    """Any server with the protocol; a cache names it. `private` are networks, not public ones, where servers may be."""

    def __init__(self, private: Sequence[Network] = (), *, allow_plain_http: bool = False) -> None:
        self._client = OutwardClient(AddressRules(private=tuple(private)))
        self._allow_plain_http = allow_plain_http

    async def resolve(self, artifact: Artifact, credential: str) -> str:
        """Give the digest of what is listed below the prefix. `credential` is a credentials file, empty for a public bucket."""
        folder = artifact.folder
        if folder is None:
            raise InvalidInput(f"{artifact.origin} is no bucket")
        if artifact.plain_http and not self._allow_plain_http:
            raise Unsupported(f"{artifact.origin}: an endpoint without TLS is refused unless the operator sets s3.allowPlainHttp")
        try:
            login = read_login(credential) if credential else None
        except ValueError as error:
            raise CredentialsInvalid(f"the credentials for {artifact.origin} cannot be read: {error}") from None
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
                f"{artifact.origin} has more than {PAGES_MAX * _PAGE_OBJECTS_MAX} objects: name the folder of the model as prefix"
            )
        if not files:
            raise InvalidInput(f"no object is below {artifact.origin}")
        return listing_digest(files)

    async def _page(self, folder: BucketFolder, artifact: Artifact, login: Login | None, token: str) -> "_Page":
        url = _url(folder, token)
        host = urlsplit(folder.endpoint).netloc
        try:
            headers = _signed(url, folder, login)
            plain = artifact.plain_http
            answer = await self._client.get(url, headers, size_max=_PAGE_BYTES_MAX, plain_http=plain, encoded=True)
        except HostRefused as error:
            raise Unsupported(f"{artifact.origin}: the worker does not connect to {host}: {error}") from None
        try:
            found = _parsed(answer)
        except ValueError as error:
            raise no_usable_answer(host, f"status {answer.status}: {error}") from None
        if answer.status != HTTPStatus.OK:
            raise _error(answer, found, host, artifact, with_credential=login is not None)
        try:
            return _Page(found, folder.prefix, artifact)
        except InvalidInput as error:
            # A key is quoted, and a server may have made it of what it was sent.
            raise InvalidInput(without_credential(error.message, f"token {login.token}" if login else "")) from None


class _Page:
    """A page of a listing. Raises InvalidInput for an object that can be no file, ServerError for what is no listing."""

    def __init__(self, found: ET.Element, prefix: str, artifact: Artifact) -> None:
        self.files: list[File] = []
        decode = unquote_plus if found.findtext("{*}EncodingType") == "url" else str
        items = found.findall("{*}Contents")
        if len(items) > _PAGE_OBJECTS_MAX:
            raise ServerError(f"the listing of {artifact.origin} has a page of more than {_PAGE_OBJECTS_MAX} objects")
        try:
            for item in items:
                key = decode(_text(item, "Key"))
                size, etag = int(_text(item, "Size")), _text(item, "ETag")
                if len(key) > _KEY_CHARACTERS_MAX:
                    raise ServerError(f"the listing of {artifact.origin} has a key of more than {_KEY_CHARACTERS_MAX} characters")
                try:
                    name = file_name(key, prefix)
                except ValueError as error:
                    raise InvalidInput(f"{artifact.origin}: {error}") from None
                if name:
                    self.files.append(File(name, size, etag, key))
        except ValueError:
            raise ServerError(f"the listing of {artifact.origin} has an object without key, size or ETag") from None
        truncated = found.findtext("{*}IsTruncated") == "true"
        self.next_token = found.findtext("{*}NextContinuationToken") or "" if truncated else ""
        if truncated and not self.next_token:
            raise ServerError(f"the listing of {artifact.origin} is not complete, and says not how it goes on")


def _url(folder: BucketFolder, token: str) -> str:
    parts = urlsplit(folder.endpoint)
    host, path = (parts.netloc, f"/{folder.bucket}") if folder.path_style else (f"{folder.bucket}.{parts.netloc}", "/")
    query = {"encoding-type": "url", "list-type": "2", "prefix": folder.prefix, **({"continuation-token": token} if token else {})}
    return f"{parts.scheme}://{host}{path}?{urlencode(sorted(query.items()), quote_via=quote, safe='')}"


def _signed(url: str, folder: BucketFolder, login: Login | None) -> dict[str, str]:
    """Give the headers of a request; those of anyone without a login."""
    if login is None:
        return {}
    request = AWSRequest(method="GET", url=url)
    S3SigV4Auth(Credentials(login.key_id, login.secret, login.token or None), "s3", folder.region).add_auth(request)
    return dict(request.headers.items())


class _FewElements(ET.TreeBuilder):
    """A tree that raises ValueError when it grows too large: each element takes some hundred bytes, and may be written in four."""

    def __init__(self) -> None:
        super().__init__()
        self._elements = 0

    def start(self, tag: str, attrs: dict[str, str], /) -> ET.Element:
        """Add an element."""
        self._elements += 1
        if self._elements > _ELEMENTS_MAX:
            raise ValueError(f"XML with more than {_ELEMENTS_MAX} elements")
        return super().start(tag, attrs)


def _parsed(answer: Answer) -> ET.Element:
    """Read XML without a document type, so that nothing is defined in it. Raises ValueError.

    It is read as UTF-8 whatever it says of itself: in another encoding a document type would not be found.
    """
    text = answer.body.decode()
    if "<!" in text:
        raise ValueError("XML with a document type")
    parser = ET.XMLParser(target=_FewElements())  # noqa: S314 -- without definitions, and of bounded size
    try:
        # In parts: the parser itself goes through all that it was given, whatever is raised.
        for at in range(0, len(text), _PART_CHARACTERS):
            parser.feed(text[at : at + _PART_CHARACTERS])
        found: ET.Element = parser.close()
    except ET.ParseError as error:
        raise ValueError(f"no XML: {error}") from None
    return found


def _error(answer: Answer, found: ET.Element, host: str, artifact: Artifact, *, with_credential: bool) -> ModelplaneError:
    """Make the error for an answer without a listing. Only a server's own error is told from that of any other."""
    code = found.findtext("{*}Code") or ""
    if not found.tag.endswith("Error") or not _CODE.fullmatch(code):
        return no_usable_answer(host, f"status {answer.status}")
    if code in _ELSEWHERE and artifact.folder:
        return InvalidInput(f"{artifact.origin} is not in region {artifact.folder.region} of {host} ({code})")
    known = error_for(answer, host, artifact.origin, with_credential=with_credential)
    return known or no_usable_answer(host, f"status {answer.status}: {code}")


def _text(item: ET.Element, name: str) -> str:
    text = item.findtext(f"{{*}}{name}")
    if not text:
        raise ValueError(name)
    return text
