"""Whether whoever asks for `/` wants a page, which browsers do, or the list of paths, as programs do."""

_HTML, _JSON = "text/html", "application/json"
_MAX = 4096


def prefers_html(accept: str) -> bool:
    """Tell whether an Accept header names HTML, with a greater weight than JSON or, with the same, before it."""
    ranges = [_weighed(entry) for entry in accept[:_MAX].split(",")]
    html = next(((weight, -at) for at, (name, weight) in enumerate(ranges) if name == _HTML), None)
    json = max(((weight, -at) for at, (name, weight) in enumerate(ranges) if name in (_JSON, "application/*", "*/*")), default=(0.0, 0))
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
