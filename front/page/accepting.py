"""Decides whether a request for `/` gets the page or the list of API paths.

Browsers get the page, other programs the list.
"""

_HTML, _JSON = "text/html", "application/json"
_MAX = 4096


def prefers_html(accept: str) -> bool:
    """Return whether an Accept header prefers HTML to JSON.

    With equal weights, the first one in the header is preferred.
    """
    ranges = [_weighed(entry) for entry in accept[:_MAX].split(",")]
    # Among the HTML entries the first one counts, among the JSON entries the one with
    # the highest weight.
    html: tuple[float, int] | None = None
    json = (0.0, -len(ranges))
    for at, (name, weight) in enumerate(ranges):
        if name == _HTML and html is None:
            html = (weight, -at)
        if name in (_JSON, "application/*", "*/*"):
            json = max(json, (weight, -at))
    return html is not None and html[0] > 0 and html > json


def _weighed(entry: str) -> tuple[str, float]:
    name, *parameters = (part.strip().lower() for part in entry.split(";"))
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return name, float(parameter.removeprefix("q="))
            except ValueError:
                return name, 0.0
    return name, 1.0
