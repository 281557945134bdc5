"""`@kernel`: loops over arrays that are compiled when it pays, and run as plain Python when it does not.

Compiled code is kept on disk for the next process. Without the compiler (the extra `speed`) everything works, slowly.
"""

import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")
SMALL = 3_000  # elements; below this a loop in Python is over before the compiler is loaded


class _Kernel:
    """A loop that is compiled, with all of its module, when it first gets more than a little to do."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.compiled: Callable[..., Any] | None = None
        self.__doc__ = function.__doc__

    def __call__(self, *arguments: Any) -> Any:
        if self.compiled is None:
            if "numba" not in sys.modules and _size(arguments) <= SMALL:
                return self.function(*arguments)
            self.compile()
        assert self.compiled is not None
        return self.compiled(*arguments)

    def compile(self) -> Callable[..., Any]:
        """Compile, and what it calls first: compiled code calls compiled code."""
        if self.compiled is None:
            try:
                import numba
            except ImportError:  # without the extra `speed`: slow for large tables, and right
                self.compiled = np.errstate(over="ignore")(self.function)  # 64-bit arithmetic is meant to wrap
                return self.compiled
            names = self.function.__globals__
            self.compiled = _compiled(numba, self.function)
            for name, value in list(names.items()):
                if isinstance(value, _Kernel):
                    names[name] = value.compile()
        return self.compiled


def _size(arguments: tuple[Any, ...]) -> int:
    """Count elements; a state of many arrays is never small."""
    return sum(a.size if isinstance(a, np.ndarray) else SMALL * isinstance(a, tuple) + 1 for a in arguments)


def _compiled(numba: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    try:
        return cast(Callable[..., Any], numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # nowhere to keep it: neither beside the source nor in the user's cache
        return cast(Callable[..., Any], numba.njit(nogil=True)(function))


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile on first use and keep the machine code on disk for the next process."""
    return cast(Callable[P, R], _Kernel(function))
