"""Selectors made at random, most of them well typed, some of them not."""

from __future__ import annotations

from hypothesis import strategies as st

_ATTRIBUTES = 'device.attributes["gpu.nvidia.com"]'
_CAPACITY = 'device.capacity["gpu.nvidia.com"]'

_LEAVES: dict[str, list[str]] = {
    "bool": ["true", "false", f"{_ATTRIBUTES}.mig", f"has({_ATTRIBUTES}.cc)", f'"idx" in {_ATTRIBUTES}', f"has({_ATTRIBUTES}.nope)"],
    "int": ["0", "1", "3", "-1", "9223372036854775807", f"{_ATTRIBUTES}.idx", f"size({_ATTRIBUTES})", "0x1F"],
    "uint": ["0u", "3u", "18446744073709551615u"],
    "double": ["0.0", "2.5", "3.0", "-1.5e3", "1e300"],
    "string": ['"Hopper"', '""', '"9.0.0"', '"1Gi"', "'a,b'", "r'\\d'", "device.driver", f"{_ATTRIBUTES}.architecture", '"é\\u00e9"'],
    "bytes": ['b"abc"', 'b"\\xff"', 'b""'],
    "quantity": ['quantity("1Gi")', 'quantity("1.5Gi")', 'quantity("500m")', 'quantity("80G")', f"{_CAPACITY}.memory", f"{_CAPACITY}.nope"],
    "semver": ['semver("9.0.0")', 'semver("8.9.0-rc.1")', 'semver("8.9", true)', f"{_ATTRIBUTES}.cc", 'semver("8.9")'],
    "any": [f"{_ATTRIBUTES}.{name}" for name in ("idx", "mig", "cc", "architecture", "nope")]
    + ['device.attributes["other.com"].model', "dyn(1)", 'dyn("a")', f'{_ATTRIBUTES}["idx"]'],
    "ints": ["[1, 2, 3]", "[]", f"[{_ATTRIBUTES}.idx]", "[0]"],
    "strings": ['["Hopper", "Ada"]', '["a"]', '"a,b".split(",")', "[]"],
    "duration": ['duration("1h")', 'duration("1.5s")', 'duration("-3ms")'],
    "timestamp": ['timestamp("2026-01-01T00:00:00Z")', "timestamp(0)"],
}

# {kind} stands for an expression of that kind; every placeholder is filled on its own.
_SHAPES: dict[str, list[str]] = {
    "bool": [
        "{bool} && {bool}",
        "{bool} || {bool}",
        "!{bool}",
        "({bool} ? {bool} : {bool})",
        "{any} == {any}",
        "{any} != {any}",
        "{any} == {string}",
        "{any} != {int}",
        "{int} == {any}",
        "{any} == {semver}",
        "{any} == {double}",
        "{int} < {int}",
        "{int} >= {double}",
        "{any} > {int}",
        "{any} <= {any}",
        "{uint} < {int}",
        "{double} > {double}",
        "{string} == {string}",
        "{string} < {string}",
        "{quantity} == {quantity}",
        "{semver} == {semver}",
        "{semver} != {any}",
        "{bytes} == {bytes}",
        "{duration} < {duration}",
        "{timestamp} >= {timestamp}",
        "{quantity}.isGreaterThan({quantity})",
        "{semver}.isLessThan({semver})",
        "{any}.isGreaterThan({any})",
        "{quantity}.compareTo({quantity}) >= 0",
        "{any}.compareTo({semver}) == 0",
        "{quantity}.isInteger()",
        "isQuantity({string})",
        "isSemver({string})",
        "isSemver({string}, {bool})",
        "{string}.startsWith({string})",
        "{string}.contains({string})",
        "{any}.endsWith({string})",
        '{string}.matches("^[A-H]")',
        "{any}.matches({string})",
        "{any} in {ints}",
        "{any} in {strings}",
        "{string} in {strings}",
        "{int} in {ints}",
        "{any} in [{any}, {any}]",
        "{ints}.all(x, x > {int})",
        "{ints}.exists(x, x == {any})",
        "{ints}.exists_one(x, {bool} || x == 1)",
        "{strings}.exists(s, s == {any})",
        "{strings}.all(s, {bool})",
        f"{_ATTRIBUTES}.all(k, k != {{string}})",
        "{ints} == {ints}",
        "{strings} == {strings}",
        "sets.contains({ints}, {ints})",
        "sets.equivalent({strings}, {strings})",
        "sets.intersects({ints}, {ints})",
        "{ints}.isSorted()",
        "cel.bind(v, {any}, v == {any} || v != {int})",
        "cel.bind(v, {bool}, v && {bool})",
        "type({any}) == int",
        "{any}",
        "{any} == null",
        '{{"a": {int}}}.a == {int}',
        '{{"a": {bool}}}["a"]',
        "[{any}] == [{any}]",
        '{{"k": {any}}} == {{"k": {any}}}',
    ],
    "int": [
        "({int} + {int})",
        "({int} - {int})",
        "({int} * {int})",
        "({int} / {int})",
        "({int} % {int})",
        "-({int})",
        "({bool} ? {int} : {int})",
        "size({string})",
        "{ints}.size()",
        "{string}.size()",
        "int({double})",
        "int({string})",
        "int({uint})",
        "{quantity}.asInteger()",
        "sign({quantity})",
        "{semver}.major()",
        "{any}.minor()",
        "{string}.indexOf({string})",
        "{string}.lastIndexOf({string}, {int})",
        "{ints}.sum()",
        "{ints}.max()",
        "{ints}.indexOf({int})",
        "{ints}[{int}]",
        "[{int}, {int}][0]",
        "{semver}.compareTo({semver})",
        "cel.bind(n, {int}, n + n)",
    ],
    "uint": ["({uint} + {uint})", "({uint} - {uint})", "uint({int})", "uint({double})"],
    "double": ["({double} + {double})", "({double} / {double})", "double({int})", "{quantity}.asApproximateFloat()", "double({string})"],
    "string": [
        "({string} + {string})",
        "{string}.lowerAscii()",
        "{string}.upperAscii()",
        "{string}.trim()",
        "{string}.substring({int})",
        "{string}.substring({int}, {int})",
        "{string}.replace({string}, {string})",
        "{string}.charAt({int})",
        '{string}.find("[a-z]+")',
        "{strings}.join({string})",
        "{strings}[{int}]",
        "string({int})",
        "string({double})",
        "string({bool})",
        "string({duration})",
        "string({timestamp})",
        "string({bytes})",
        "({bool} ? {string} : {string})",
    ],
    "bytes": ["({bytes} + {bytes})", "bytes({string})"],
    "quantity": ["{quantity}.add({quantity})", "{quantity}.sub({quantity})", "{quantity}.add({int})", "quantity({string})"],
    "semver": ["semver({string})", "({bool} ? {semver} : {semver})"],
    "any": ["({bool} ? {any} : {any})", "dyn({int})", "dyn({string})", "{ints}.map(x, dyn(x))[0]"],
    "ints": [
        "({ints} + {ints})",
        "{ints}.map(x, x * {int})",
        "{ints}.filter(x, x > {int})",
        "{ints}.map(x, x > 1, {int})",
        "[{int}, {int}]",
        "{strings}.map(s, s.size())",
    ],
    "strings": [
        "{string}.split({string})",
        "{string}.split({string}, {int})",
        '{string}.findAll("[a-z]")',
        "[{string}, {string}]",
        "{strings}.filter(s, s.startsWith({string}))",
        "({strings} + {strings})",
    ],
    "duration": ["({duration} + {duration})", "({timestamp} - {timestamp})"],
    "timestamp": ["({timestamp} + {duration})"],
}

_DEPTH_MAX = 3


@st.composite
def expressions(draw: st.DrawFn, kind: str = "bool", depth: int = _DEPTH_MAX) -> str:
    """An expression that should have the given kind."""
    # Now and then something of another kind, so that the checker is tried as well.
    if draw(st.integers(0, 49)) == 0:
        kind = draw(st.sampled_from(sorted(_LEAVES)))
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(_LEAVES[kind]))
    shape = draw(st.sampled_from(_SHAPES[kind]))
    made: list[str] = []
    rest = shape
    while rest:
        before, brace, after = rest.partition("{")
        made.append(before.replace("}}", "}"))
        if not brace:
            break
        if after.startswith("{"):
            made.append("{")
            rest = after[1:]
            continue
        wanted, _, rest = after.partition("}")
        made.append(draw(expressions(wanted, depth - 1)))
    return "".join(made)
