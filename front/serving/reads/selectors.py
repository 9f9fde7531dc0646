"""Label and field selectors of requests."""

from collections.abc import Callable

from fleet_client.errors import Refused as NoSelector
from fleet_client.refs.selectors import TERMS_MAX, parse_selector
from front.serving.errors import RejectedRequest, bad_request
from front.store.projection import ObjectKey, StoredObject

Labels = Callable[[StoredObject], bool]
_FIELDS = ("metadata.name", "metadata.namespace")
_LENGTH_MAX = 16 * 1024


class ObjectSelector:
    """A selection within a kind: by namespace, name, labels and fields."""

    def __init__(
        self,
        namespace: str,
        name: str,
        labels: str,
        fields: str,
        *,
        namespaced: bool = True,
    ) -> None:
        """Parse the selectors. Raises `RejectedRequest`."""
        self._namespace, self._name = namespace, name
        self.by_labels = bool(labels.strip())
        try:
            self._labels = parse_selector(labels)
        except NoSelector as error:
            raise bad_request(
                f"labelSelector: {error.message}; {error.next_step}"
            ) from error
        self._terms = _terms(fields, _FIELDS if namespaced else _FIELDS[:1])

    def has_key(self, key: ObjectKey) -> bool:
        """Return whether the namespace, the name and the field selector match."""
        if (self._namespace and key.namespace != self._namespace) or (
            self._name and key.name != self._name
        ):
            return False
        values = {"metadata.name": key.name, "metadata.namespace": key.namespace}
        return all(
            (values[field] == value) is equal for field, value, equal in self._terms
        )

    def has_labels(self, stored: StoredObject) -> bool:
        """Return whether the label selector matches."""
        return self._labels(stored.labels)

    def had_labels(self, stored: StoredObject, since: int) -> bool:
        """Return whether the labels at a version matched.

        The current labels are used if the earlier ones are unknown.
        """
        if stored.relabelled > since:
            return self._labels(stored.labels_before)
        return self._labels(stored.labels)


def _terms(text: str, allowed: tuple[str, ...]) -> list[tuple[str, str, bool]]:
    if len(text) > _LENGTH_MAX:
        raise bad_request(f"fieldSelector: longer than {_LENGTH_MAX} characters")
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) > TERMS_MAX:
        raise bad_request(f"fieldSelector: more than {TERMS_MAX} terms")
    return [_term(part, allowed) for part in parts]


def _term(text: str, allowed: tuple[str, ...]) -> tuple[str, str, bool]:
    for sign, equal in (("!=", False), ("==", True), ("=", True)):
        field, found, value = text.partition(sign)
        if found:
            if field not in allowed:
                raise _unknown(field, allowed)
            return field, value, equal
    raise bad_request(
        f"fieldSelector: invalid selector: {text!r}; can't understand it: use FIELD=VALUE"
    )


def _unknown(field: str, allowed: tuple[str, ...]) -> RejectedRequest:
    return bad_request(
        f"fieldSelector: field label not supported: {field!r}; use {' or '.join(allowed)}"
    )
