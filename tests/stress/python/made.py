# SPDX-License-Identifier: Apache-2.0
"""Code objects that are made, run once and dropped, so that the next one lies
where the one before lay: usage: made.py ROUNDS.

Round i allocates UNIT * (4 i + k) bytes from code of kind k:
  1  a module's code: the same name ("<module>") and line, another file
  2  a function: another name, the same file and line
  3  a function: the same name and file, another line
Prints how often a code object of kind 1 lay where an earlier one had lain.
"""
import ctypes
import sys

UNIT = 512
_runtime = ctypes.CDLL("libcudart.so.13")
_pointer = ctypes.c_void_p()
_size = ctypes.c_size_t()


def allocate(size):
    _size.value = size
    assert _runtime.cudaMalloc(ctypes.byref(_pointer), _size) == 0


def module_code(i):
    # Texts of one length, never hashed by anybody before.
    code = compile("allocate(size)\n", "".join(["<file ", "%07d" % i, ">"]), "exec")
    exec(code, {"allocate": allocate, "size": UNIT * (4 * i + 1)})
    return id(code)


def named_function(i):
    scope = {"allocate": allocate}
    exec(compile("def made_%07d(size):\n    allocate(size)\n" % i, "<same>", "exec"), scope)
    scope["made_%07d" % i](UNIT * (4 * i + 2))


def moved_function(i):
    scope = {"allocate": allocate}
    exec(compile("\n" * (i % 200) + "def moved(size):\n    allocate(size)\n", "<moved>", "exec"), scope)
    scope["moved"](UNIT * (4 * i + 3))


def main():
    reused, seen = 0, set()
    for i in range(int(sys.argv[1])):
        address = module_code(i)
        reused += address in seen
        seen.add(address)
        named_function(i)
        moved_function(i)
    print(reused)


main()
