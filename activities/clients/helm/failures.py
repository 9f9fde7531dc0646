"""From what helm writes to standard error to the errors of this project (spec/stack-and-routing.md 1.4, rulings 81 to 84).

Helm has no codes, so the text decides. The rows are tried from the top: a text of an admission webhook may quote a connection that was
refused, and "cluster unreachable" stands in front of a credential that was not accepted. `tests/activities/clients/helm/test_failures.py`
provokes each with real helm. Texts are kept in histories, so whatever may be a secret is removed and the length is bounded.
"""

import re
from collections.abc import Iterable

from activities.clients.kubernetes.redact import redact
from activities.clients.outward.redaction import without_credential
from api_types.errors import (
    ChartUnavailable,
    ClusterUnreachable,
    CredentialsInvalid,
    InvalidInput,
    ModelplaneError,
    NameConflict,
    PermissionDenied,
    ReleasePending,
    ServerError,
    StackMissing,
    Throttled,
)

_NOT_FOUND = re.compile(r"release: not found")
_REMOVED_MEANWHILE = re.compile(r'Failed to purge the release: secrets "sh\.helm\.release\.v1\.[^"]*" not found')

_ROWS: tuple[tuple[type[ModelplaneError], re.Pattern[str], str], ...] = tuple(
    (error, re.compile(pattern, re.IGNORECASE), advice)
    for error, pattern, advice in (
        (
            ReleasePending,
            (
                r"another operation .*is in progress|cannot re-use a name that is still in use|release: already exists"
                r'|"sh\.helm\.release\.v1\.[^"]*" already exists'
            ),
            "",
        ),
        (ServerError, r"failed calling webhook|etcdserver|because it is being terminated|internal error occurred", ""),
        (InvalidInput, r"admission webhook .* denied the request|ValidatingAdmissionPolicy .* denied request", ""),
        (
            CredentialsInvalid,
            r"unauthorized|asked for the client to provide credentials",
            (
                "the API server does not accept this credential (401); put a valid kubeconfig into the secret store, or see whether the "
                "identity of the cloud may still log in to the cluster"
            ),
        ),
        (Throttled, r"too many requests", ""),
        (
            ClusterUnreachable,
            (
                r"cluster unreachable|connection refused|no such host|i/o timeout|network is unreachable|no route to host"
                r"|TLS handshake timeout|connection reset by peer|http2: client connection lost|: EOF\b"
            ),
            "check that the API server runs and that the worker can reach it",
        ),
        (NameConflict, r"invalid ownership metadata", "it belongs to another release or to nobody; delete it, or the release that has it"),
        (
            InvalidInput,
            (
                r"execution error at|error calling |nil pointer evaluating|YAML parse error|error decoding YAML|parse error at"
                r"|failed to render chart|don't meet the specifications of the schema|failed to parse -:"
                r"|^(?:Error: )?(?:template: )?\S+/templates/\S+:\d+"
            ),
            "the chart does not render with these values",
        ),
        (PermissionDenied, r"is forbidden", "grant the permission to the user of the kubeconfig"),
        (StackMissing, r"no matches for kind", "the definition of the kind must be installed first"),
        (
            InvalidInput,
            (
                r"is invalid:|cannot be handled as an? |failed to create typed patch object|failed to convert new object|unknown field"
                r"|strict decoding error"
            ),
            "",
        ),
        (ServerError, r"timed out waiting for the condition|context deadline exceeded", "a hook did not end in time"),
    )
)
# Validation quotes values, and those of these kinds may be secret.
_QUOTED_VALUES = re.compile(
    r"((?:Secret|ConfigMap)\b[^\n]*?(?:is invalid:|cannot be handled as|typed patch object|to proper version))[^\n]*"
)
_CREATED_TYPED = re.compile(r"(failed to create typed patch object \([^)]*Kind=(?:Secret|ConfigMap)\)):[^\n]*")
_OF_SCHEMA = re.compile(r"^(- at '.*?': )'.*'(?= does not match pattern| is not valid )", re.MULTILINE)
_ERROR = "Error: "
_WARNING = re.compile(r"^(?:level=|I\d{4}|W\d{4}|E\d{4}|(?:\w+\.go:\d+: )?warning:)", re.IGNORECASE)


def is_not_found(stderr: str) -> bool:
    """Whether helm says that there is no such release."""
    return bool(_NOT_FOUND.search(stderr))


def is_removed_meanwhile(stderr: str) -> bool:
    """Whether a revision went away while helm removed the release: another helm removes it too, and may not have removed all of it."""
    return bool(_REMOVED_MEANWHILE.search(stderr))


def of_cluster(stderr: str, doing: str, secrets: Iterable[str] = ()) -> ModelplaneError:
    """Make the error for a helm run that failed. `doing` names the run, such as `cluster eu-1: release lws-system/mp-lws: upgrade`.

    `secrets` are the credentials of the run, which are removed from the text whatever they look like.
    """
    text = scrubbed(stderr, secrets)
    said = _said(stderr)
    for error, pattern, advice in _ROWS:
        if pattern.search(said):
            return error("; ".join(filter(None, (f"{doing}: {text}", advice))))
    return ServerError(f"{doing}: {text or 'helm failed and gave no reason'}")


def of_repository(stderr: str, doing: str) -> ModelplaneError:
    """Make the error for a chart that could not be fetched."""
    return ChartUnavailable(f"{doing}: {scrubbed(stderr) or 'helm failed and gave no reason'}; check the repository and the version")


def scrubbed(stderr: str, secrets: Iterable[str] = ()) -> str:
    """Give the text of an error on one line, without secrets, and bounded."""
    for secret in secrets:
        stderr = without_credential(stderr, f"Bearer {secret}")
    text = " ".join(redact(_OF_SCHEMA.sub(r"\1[value not shown]", _said(stderr))).splitlines()).removeprefix(_ERROR)
    return _CREATED_TYPED.sub(r"\1: [values not shown]", _QUOTED_VALUES.sub(r"\1 [values not shown]", text))


def _said(stderr: str) -> str:
    """Give the lines of the error, which comes last: what is written before it may be longer than what is kept."""
    lines = [line for line in map(str.strip, stderr.splitlines()) if line]
    said = [line for line in lines if not _WARNING.match(line)] or lines
    begins = next((at for at, line in enumerate(said) if line.startswith(_ERROR)), 0)
    return "\n".join(said[begins:])
