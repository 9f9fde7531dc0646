"""Label and field selectors of requests."""

from collections.abc import Callable

from client.errors import Refused as NoSelector
from client.refs.selectors import TERMS_MAX, parse_selector
from front.serving.errors import Refused, bad_request
from front.store.projection import Key, Stored

Labels = Callable[[Stored], bool]
_FIELDS = ("metadata.name", "metadata.namespace")
_LENGTH_MAX = 16 * 1024


class Selection:
    """What of a kind is wanted: a namespace, or one name, or all that two selectors select."""

    def __init__(self, namespace: str, name: str, labels: str, fields: str) -> None:
        """Read the selectors. Raises `Refused`."""
        self._namespace, self._name = namespace, name
        self.by_labels = bool(labels.strip())
        try:
            self._labels = parse_selector(labels)
        except NoSelector as error:
            raise bad_request(f"labelSelector: {error.message}; {error.next_step}") from error
        self._terms = _terms(fields)

    def has_key(self, key: Key) -> bool:
        """Whether an object is in the namespace, and has the name."""
        if (self._namespace and key.namespace != self._namespace) or (self._name and key.name != self._name):
            return False
        values = {"metadata.name": key.name, "metadata.namespace": key.namespace}
        return all((values[field] == value) is equal for field, value, equal in self._terms)

    def has_labels(self, stored: Stored) -> bool:
        """Whether its labels are selected."""
        return self._labels(stored.labels)

    def had_labels(self, stored: Stored, since: int) -> bool:
        """Whether the labels that it had at a version were selected; those that it has, if they are not known."""
        return self._labels(stored.labels_before if stored.relabelled > since else stored.labels)


def _terms(text: str) -> list[tuple[str, str, bool]]:
    if len(text) > _LENGTH_MAX:
        raise bad_request(f"fieldSelector: longer than {_LENGTH_MAX} characters")
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) > TERMS_MAX:
        raise bad_request(f"fieldSelector: more than {TERMS_MAX} terms")
    return [_term(part) for part in parts]


def _term(text: str) -> tuple[str, str, bool]:
    for sign, equal in (("!=", False), ("==", True), ("=", True)):
        field, found, value = text.partition(sign)
        if found:
            if field not in _FIELDS:
                raise _unknown(field)
            return field, value, equal
    raise bad_request(f"fieldSelector: invalid selector: {text!r}; can't understand it: write FIELD=VALUE")


def _unknown(field: str) -> Refused:
    return bad_request(f"fieldSelector: field label not supported: {field!r}; {' and '.join(_FIELDS)} are")
