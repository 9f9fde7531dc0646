"""Who asks: the bearer of a token that the access file knows, or of a certificate that an authority of ours has signed."""

from front.access.access_file import AccessRules, User
from front.access.certificates import Certificate


def authenticate(token: str | None, certificate: Certificate | None, rules: AccessRules) -> User | None:
    """Give the user of a request by its token, or without any by the certificate of its connection; None for nobody."""
    if token is not None:
        return rules.user_of(token)
    return certificate.user() if certificate else None
