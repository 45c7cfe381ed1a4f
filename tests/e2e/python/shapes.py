# SPDX-License-Identifier: Apache-2.0
"""Python call shapes that a frame reader can get wrong, one function each.

usage: shapes.py NAME
"""
import asyncio
import ctypes
import functools
import sys
import threading

from cuda import allocate, finish, free


def nested():
    def forward(x):
        def attention(y):
            return allocate(
            ) if y else None

        return attention(x)

    forward(1)
    forward(2)


def recursion(depth=60):
    if depth == 0:
        return allocate()
    return recursion(depth - 1)


def deep_recursion():
    sys.setrecursionlimit(5000)
    recursion(1000)


def generators():
    def leaf():
        yield allocate()
        yield allocate()

    def middle():
        yield from leaf()
        yield allocate()

    def root():
        for pointer in middle():
            yield pointer

    assert len(list(root())) == 3


def comprehensions():
    pointers = [allocate() for _ in range(3)]
    names = {i: (lambda: allocate())() for i in range(2)}
    assert len(pointers) + len(names) == 5


def coroutines():
    async def layer(n):
        await asyncio.sleep(0)
        allocate()
        await asyncio.sleep(0)
        return n

    async def stream():
        for i in range(2):
            allocate()
            yield i
            await asyncio.sleep(0)

    async def main():
        await asyncio.gather(*(layer(i) for i in range(3)))
        async for _ in stream():
            allocate()

    asyncio.run(main())


class Module:
    def __call__(self, x):
        return self.forward(x)

    def forward(self, x):
        return allocate()

    @property
    def grad(self):
        return allocate()

    def __len__(self):
        allocate()
        return 1

    def __del__(self):
        allocate()

    @staticmethod
    def build():
        return allocate()


def methods():
    module = Module()
    module(1)
    module.grad
    len(module)
    Module.build()
    del module


def through_c():
    """Python -> C -> Python: several interpreter loops in one stack."""
    def key(x):
        allocate()
        return x

    sorted([2, 1, 3], key=key)
    functools.reduce(lambda a, b: (allocate(), a)[1], [1, 2, 3])
    list(map(key, [1]))
    max([1, 2], key=functools.partial(key))


def through_ctypes():
    """C code calls back with the interpreter lock released in between."""
    compare_type = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))

    def compare(a, b):
        allocate()
        return a[0] - b[0]

    libc = ctypes.CDLL(None)
    array = (ctypes.c_int * 3)(3, 1, 2)
    libc.qsort(array, 3, ctypes.sizeof(ctypes.c_int), compare_type(compare))


def executed():
    """Code with made-up names and files, gone after use."""
    for i in range(50):
        source = "\n" * i + "def made_%d():\n    return allocate()\nmade_%d()\n" % (i, i)
        exec(compile(source, "<made %d>" % i, "exec"), {"allocate": allocate})
    eval("allocate()")


def exceptions():
    def fails():
        raise ValueError

    try:
        fails()
    except ValueError:
        allocate()
    finally:
        allocate()


def threads():
    def worker(n):
        def inner():
            for _ in range(5):
                free(allocate())

        inner() if n % 2 else recursion(n)

    all_of_them = [threading.Thread(target=worker, args=(n,)) for n in range(8)]
    for thread in all_of_them:
        thread.start()
    for thread in all_of_them:
        thread.join()


def decorated():
    def no_grad(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    @no_grad
    @no_grad
    def step():
        return allocate()

    step()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    finish()
