"""Convert helm's standard error into the errors of this project.

Helm has no error codes, so the text decides. The rows are tried from the top, because a
message may contain the text of another: an admission webhook may quote a refused
connection, and "cluster unreachable" precedes a rejected credential.
`tests/activities/clients/helm/test_failures.py` provokes each error with a real helm.
Histories keep the texts, so secrets are removed and the length is limited.
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
_REMOVED_MEANWHILE = re.compile(
    r'Failed to purge the release: secrets "sh\.helm\.release\.v1\.[^"]*" not found'
)

_ROWS: tuple[tuple[type[ModelplaneError], re.Pattern[str], str], ...] = tuple(
    (error, re.compile(pattern, re.IGNORECASE), advice)
    for error, pattern, advice in (
        (
            ReleasePending,
            (
                r"another operation .*is in progress"
                r"|cannot re-use a name that is still in use|release: already exists"
                r'|"sh\.helm\.release\.v1\.[^"]*" already exists'
            ),
            "",
        ),
        (
            ServerError,
            (
                r"failed calling webhook|etcdserver|because it is being terminated"
                r"|internal error occurred"
            ),
            "",
        ),
        (
            InvalidInput,
            (
                r"admission webhook .* denied the request"
                r"|ValidatingAdmissionPolicy .* denied request"
            ),
            "",
        ),
        (
            CredentialsInvalid,
            r"unauthorized|asked for the client to provide credentials",
            (
                "the API server does not accept this credential (401); put a valid "
                "kubeconfig into the secret store, or see whether the identity of the "
                "cloud may still log in to the cluster"
            ),
        ),
        (Throttled, r"too many requests", ""),
        (
            ClusterUnreachable,
            (
                r"cluster unreachable|connection refused|no such host|i/o timeout"
                r"|network is unreachable|no route to host|TLS handshake timeout"
                r"|connection reset by peer|http2: client connection lost|: EOF\b"
            ),
            "check that the API server runs and that the worker can reach it",
        ),
        (
            NameConflict,
            r"invalid ownership metadata",
            (
                "it belongs to another release or to nobody; "
                "delete it, or the release that has it"
            ),
        ),
        (
            InvalidInput,
            (
                r"execution error at|error calling |nil pointer evaluating"
                r"|YAML parse error|error decoding YAML|parse error at"
                r"|failed to render chart|don't meet the specifications of the schema"
                r"|failed to parse -:"
                r"|^(?:Error: )?(?:template: )?\S+/templates/\S+:\d+"
            ),
            "the chart does not render with these values",
        ),
        (
            PermissionDenied,
            r"is forbidden",
            "grant the permission to the user of the kubeconfig",
        ),
        (
            StackMissing,
            r"no matches for kind",
            "the definition of the kind must be installed first",
        ),
        (
            InvalidInput,
            (
                r"is invalid:|cannot be handled as an? "
                r"|failed to create typed patch object|failed to convert new object"
                r"|unknown field|strict decoding error"
            ),
            "",
        ),
        (
            ServerError,
            r"timed out waiting for the condition|context deadline exceeded",
            "a hook did not end in time",
        ),
    )
)
# Validation messages quote values, and values of these kinds may be secret.
_QUOTED_VALUES = re.compile(
    r"((?:Secret|ConfigMap)\b[^\n]*?"
    r"(?:is invalid:|cannot be handled as|typed patch object|to proper version))[^\n]*"
)
_CREATED_TYPED = re.compile(
    r"(failed to create typed patch object \([^)]*Kind=(?:Secret|ConfigMap)\)):[^\n]*"
)
_OF_SCHEMA = re.compile(
    r"^(- at '.*?': )'.*'(?= does not match pattern| is not valid )", re.MULTILINE
)
_ERROR = "Error: "
_WARNING = re.compile(
    r"^(?:level=|I\d{4}|W\d{4}|E\d{4}|(?:\w+\.go:\d+: )?warning:)", re.IGNORECASE
)


def is_not_found(stderr: str) -> bool:
    """Return whether helm reports that the release does not exist."""
    return bool(_NOT_FOUND.search(stderr))


def is_removed_meanwhile(stderr: str) -> bool:
    """Return whether another helm has removed a revision in the meantime.

    The other helm removes the same release, and may not have removed all of it.
    """
    return bool(_REMOVED_MEANWHILE.search(stderr))


def of_cluster(stderr: str, doing: str, secrets: Iterable[str] = ()) -> ModelplaneError:
    """Return the error for a failed helm run.

    `doing` names the run, such as `cluster eu-1: release lws-system/mp-lws: upgrade`.
    `secrets` are the credentials of the run, which are removed from the text in any
    form.
    """
    text = scrubbed(stderr, secrets)
    said = _said(stderr)
    for error, pattern, advice in _ROWS:
        if pattern.search(said):
            return error("; ".join(filter(None, (f"{doing}: {text}", advice))))
    return ServerError(f"{doing}: {text or 'helm failed and gave no reason'}")


def of_repository(stderr: str, doing: str) -> ModelplaneError:
    """Return the error for a chart that could not be fetched."""
    return ChartUnavailable(
        f"{doing}: {scrubbed(stderr) or 'helm failed and gave no reason'}; "
        "check the repository and the version"
    )


def scrubbed(stderr: str, secrets: Iterable[str] = ()) -> str:
    """Return the text of an error on one line, without secrets, and shortened."""
    for secret in secrets:
        stderr = without_credential(stderr, f"Bearer {secret}")
    shown = redact(_OF_SCHEMA.sub(r"\1[value not shown]", _said(stderr)))
    text = " ".join(shown.splitlines()).removeprefix(_ERROR)
    text = _QUOTED_VALUES.sub(r"\1 [values not shown]", text)
    return _CREATED_TYPED.sub(r"\1: [values not shown]", text)


def _said(stderr: str) -> str:
    """Return the last lines, which contain the error.

    The output before them may be longer than the stored text.
    """
    lines = [line for line in map(str.strip, stderr.splitlines()) if line]
    said = [line for line in lines if not _WARNING.match(line)] or lines
    begins = next((at for at, line in enumerate(said) if line.startswith(_ERROR)), 0)
    return "\n".join(said[begins:])
