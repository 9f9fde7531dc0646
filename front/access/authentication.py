"""Who asks: the bearer of a token that the access file knows."""

from collections.abc import Sequence

from front.access.access_file import AccessRules, User


def authenticate(headers: Sequence[str], rules: AccessRules) -> User | None:
    """Give the user of a request by its Authorization headers; None if there is not just one, or nobody has its token."""
    if len(headers) != 1:
        return None
    scheme, _, token = headers[0].partition(" ")
    return rules.user_of(token.strip()) if scheme.lower() == "bearer" else None
