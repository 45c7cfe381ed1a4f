# SPDX-License-Identifier: Apache-2.0
"""Tells dstrace where a Python program is.

    import dstrace

    with dstrace.range("load"):
        model = load()

    @dstrace.range("step")
    def step(batch): ...

    dstrace.mark("warm")

and later: dstrace-report run.pb --at mark:warm

Needs nothing but ctypes. In a process that does not run under libdstrace.so
every call does nothing. Only a process that uses CUDA is traced: points count
from its first CUDA call on, ranges also when they were open then.
"""
import ctypes
import functools

__all__ = ["mark", "push", "pop", "range", "is_traced"]


def _functions():
    """(mark, push, pop) of the preloaded library, or None."""
    try:
        # PyDLL: the calls are short and need no release of the GIL.
        program = ctypes.PyDLL(None)
        mark, push, pop = program.dstrace_mark, program.dstrace_push, program.dstrace_pop
    except (AttributeError, OSError, TypeError):
        return None
    for function in (mark, push):
        function.argtypes, function.restype = [ctypes.c_char_p], None
    pop.argtypes, pop.restype = [], None
    return mark, push, pop


_TRACED = _functions()


def _encode(name):
    """What C can take: UTF-8 up to a NUL."""
    if isinstance(name, bytes):
        text = name
    else:
        text = str(name).encode("utf-8", "replace")
    return text.split(b"\0", 1)[0]


def is_traced():
    """True if this process runs under libdstrace.so."""
    return _TRACED is not None


def mark(name):
    """An instant with a name."""
    if _TRACED is not None:
        _TRACED[0](_encode(name))


def push(name):
    """Opens a range in this thread; pop() closes the innermost one."""
    if _TRACED is not None:
        _TRACED[1](_encode(name))


def pop():
    """Closes the innermost range of this thread."""
    if _TRACED is not None:
        _TRACED[2]()


class range:  # noqa: A001 - the name NVTX has for it
    """A range around a `with` block or a function. May be used again."""

    __slots__ = ("_name",)

    def __init__(self, name):
        self._name = name if _TRACED is None else _encode(name)

    def __enter__(self):
        push(self._name)
        return self

    def __exit__(self, *exception):
        pop()
        return False

    def __call__(self, function):
        if _TRACED is None:
            return function

        @functools.wraps(function)
        def inside(*args, **kwargs):
            push(self._name)
            try:
                return function(*args, **kwargs)
            finally:
                pop()
        return inside
