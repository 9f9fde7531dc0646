"""Reads the options of a delete from its body and parameters, as Kubernetes does."""

from collections.abc import Mapping

from front.serving import bodies, errors
from front.serving.reads import list_options
from front.store.projection import Tree

OPTIONS = "DeleteOptions"
_POLICY, _ORPHANS, _PERIOD = (
    "propagationPolicy",
    "orphanDependents",
    "gracePeriodSeconds",
)
_POLICIES = ("Foreground", "Background", "Orphan")
_VERSIONS = ("v1", "meta.k8s.io/v1")


def parsed(body: bytes, content_type: str, parameters: Mapping[str, str]) -> Tree:
    """Return the options of the body, or else of the parameters.

    Raises `RejectedRequest`.
    """
    if body.strip():
        kind = bodies.media_type(content_type, bodies.OBJECTS, silent=bodies.JSON)
        options = bodies.parse_object(body, kind)
        _check_type(options)
    else:
        options = {
            key: parameters[key] for key in (_POLICY, _ORPHANS) if key in parameters
        }
        if _ORPHANS in options:
            options[_ORPHANS] = options[_ORPHANS].lower() not in ("false", "0")
        list_options.integer(parameters, _PERIOD)
    _check(options)
    return options


def _check_type(options: Tree) -> None:
    kind, version = options.get("kind"), options.get("apiVersion")
    if kind not in (None, "", OPTIONS) or (kind and not version):
        raise errors.bad_request(f"the body must be {OPTIONS}, not {str(kind)[:64]!r}")
    if not isinstance(options.get("preconditions") or {}, dict):
        raise errors.bad_request("preconditions: must be an object")
    if not isinstance(options.get("dryRun") or [], list):
        raise errors.bad_request("dryRun: must be a list")


def _check(options: Tree) -> None:
    policy, orphans = options.get(_POLICY), options.get(_ORPHANS)
    check_dry(options.get("dryRun") or [], OPTIONS)
    if policy is not None and orphans is not None:
        about = (
            f'Invalid value: "{policy}": {_ORPHANS} and {_POLICY} cannot both be set'
        )
        raise errors.invalid_option(OPTIONS, _POLICY, "FieldValueInvalid", about)
    if policy is not None and policy not in _POLICIES:
        supported = ", ".join(f'"{each}"' for each in _POLICIES)
        about = (
            f'Unsupported value: "{str(policy)[:64]}": supported values: {supported}'
        )
        raise errors.invalid_option(OPTIONS, _POLICY, "FieldValueNotSupported", about)
    if policy == "Orphan" or orphans:
        raise errors.bad_request(
            "propagationPolicy: Orphan is not supported: dependents of an object are "
            "deleted with it"
        )


def check_dry(values: list[str], options: str) -> None:
    """Raise `RejectedRequest` for a dry run of an unknown kind."""
    if any(value != "All" for value in values):
        about = f'Unsupported value: {values!r:.64}: supported values: "All"'
        raise errors.invalid_option(options, "dryRun", "FieldValueNotSupported", about)
