"""Comparisons that say what a learner needs: what went in, what was expected, what came out, where, and the likely mistake."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

MAX_SHOWN = 300  # characters of one value


def assert_equal(got: Any, expected: Any, what: str, inputs: Any = None, hint: str | None = None) -> None:
    """Plain values: equal, and of one kind where one of them is a bool or None. Raises AssertionError."""
    kinds_differ = isinstance(got, bool | None) != isinstance(expected, bool | None)
    if kinds_differ or not bool(got == expected):
        raise AssertionError(_message(what, [f"expected {_shown(expected)}", f"got      {_shown(got)}"], inputs, hint))


def assert_close(
    got: Any, expected: Any, what: str, *, atol: float, rtol: float, inputs: Any = None, hint: str | None = None
) -> None:
    """Tensors, arrays or numbers: equal shapes, and |got - expected| <= atol + rtol * |expected| everywhere.

    Where both are tensors their dtypes must be equal too. inf matches inf of the same sign, NaN matches NaN. Raises
    AssertionError; it says where the first difference is and recognises two axes in the wrong order.
    """
    fault = _difference(got, expected, atol, rtol)
    if fault:
        raise AssertionError(_message(what, fault, inputs, hint))


def assert_raises(
    error: type[Exception], call: Callable[[], Any], what: str, match: str | None = None, hint: str | None = None
) -> None:
    """call() must raise `error`, with `match` (any case) in its message. `what` names the call: "f(-1)"."""
    try:
        got = call()
    except NotImplementedError:  # a part that is not written yet is another matter, whatever was expected
        raise
    except error as e:
        if match is not None and match.lower() not in str(e).lower():
            lines = [f"expected a {error.__name__} whose message names {match!r}", f"got      {_shown(str(e))}"]
            raise AssertionError(_message(what, lines, None, hint)) from e
        return
    except Exception as e:
        lines = [f"expected {error.__name__}", f"got      {type(e).__name__}: {e}"]
        raise AssertionError(_message(what, lines, None, hint)) from e
    raise AssertionError(_message(what, [f"expected {error.__name__}", f"got      {_shown(got)}"], None, hint))


def _difference(got: Any, expected: Any, atol: float, rtol: float) -> list[str]:
    """What is wrong, in lines; empty if nothing is."""
    import numpy as np  # here: labs.kit is imported by learners' files

    if got is None:
        return [f"expected {_kind(expected)}", "got      None; is a return missing?"]
    try:
        a, b = _array(got), _array(expected)
    except (TypeError, ValueError):
        return [f"expected {_kind(expected)}", f"got      {_shown(got)}"]
    if a.shape != b.shape:
        lines = [f"expected shape {list(b.shape)}", f"got      shape {list(a.shape)}"]
        return lines + _axes_exchanged(a, b, atol, rtol)
    dtypes = getattr(got, "dtype", None), getattr(expected, "dtype", None)
    if hasattr(got, "detach") and hasattr(expected, "detach") and dtypes[0] != dtypes[1]:
        return [f"expected dtype {dtypes[1]}", f"got      dtype {dtypes[0]}"]
    bad = ~np.isclose(a, b, atol=atol, rtol=rtol, equal_nan=True)
    if not bad.any():
        return []
    return _where(a, b, bad, atol, rtol) + _not_finite(a, b) + _axes_exchanged(a, b, atol, rtol)


def _where(a, b, bad, atol: float, rtol: float) -> list[str]:
    import numpy as np

    if a.ndim == 0:
        return [f"expected {b.item():g}", f"got      {a.item():g}, allowed are atol={atol:g}, rtol={rtol:g}"]
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    with np.errstate(invalid="ignore"):
        gaps = np.where(np.isfinite(a) & np.isfinite(b), np.abs(a - b), 0.0)
    return [
        f"expected {b[first]:g} at index {list(first)}, the first that differs, of shape {list(a.shape)}",
        f"got      {a[first]:g}",
        f"{int(bad.sum())} of {bad.size} values differ; the largest difference is {gaps.max():.3g}, "
        f"allowed are atol={atol:g}, rtol={rtol:g}",
    ]


def _not_finite(a, b) -> list[str]:
    import numpy as np

    return [
        f"{count} of the values that came out {'is' if count == 1 else 'are'} {name}, {int(test(b).sum())} should be"
        for name, test in (("NaN", np.isnan), ("infinite", np.isinf))
        if (count := int(test(a).sum())) != int(test(b).sum())
    ]


def _axes_exchanged(a, b, atol: float, rtol: float) -> list[str]:
    import numpy as np

    for i, j in itertools.combinations(range(a.ndim), 2) if a.ndim == b.ndim else ():
        swapped = np.swapaxes(a, i, j)
        if swapped.shape == b.shape and np.allclose(swapped, b, atol=atol, rtol=rtol, equal_nan=True):
            return [f"your result is the expected one with axes {i} and {j} exchanged"]
    if a.shape != b.shape and a.size == b.size and np.allclose(a.ravel(), b.ravel(), atol=atol, rtol=rtol, equal_nan=True):
        return ["the values are right, in the right order: only the shape differs"]
    return []


def _array(value: Any):
    import numpy as np

    if hasattr(value, "detach"):  # a torch tensor; numpy knows no bfloat16
        value = value.detach().cpu().double().numpy()
    array = np.asarray(value)
    if array.dtype == object or array.dtype.kind not in "biuf":
        raise TypeError(array.dtype)
    return array.astype(np.float64)


def _message(what: str, lines: list[str], inputs: Any, hint: str | None) -> str:
    parts = [f"{what}: not as expected"]
    if inputs is not None:
        parts.append(f"  input    {_shown(inputs) if not isinstance(inputs, str) else inputs}")
    parts += [f"  {line}" for line in lines]
    if hint:
        parts.append(f"  likely   {hint}")
    return "\n".join(parts)


def _kind(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{type(value).__name__.lower()} of shape {list(value.shape)}, {value.dtype}"
    return _shown(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}… ({len(text)} characters)"
