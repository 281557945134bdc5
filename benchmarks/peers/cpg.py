"""A client of Corosync's closed process groups: sends the lines it is given, and prints what comes, in its order."""

import ctypes
import os
import select
import sys

DISPATCH_ALL, AGREED, OK, TRY_AGAIN = 2, 2, 1, 6


class Name(ctypes.Structure):
    """The name of a group."""

    _fields_ = (("length", ctypes.c_uint32), ("value", ctypes.c_char * 128))


class Vector(ctypes.Structure):
    """What is sent."""

    _fields_ = (("base", ctypes.c_char_p), ("length", ctypes.c_size_t))


DELIVER = ctypes.CFUNCTYPE(
    None, ctypes.c_uint64, ctypes.POINTER(Name), ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t
)
CHANGE = ctypes.CFUNCTYPE(
    None, ctypes.c_uint64, ctypes.POINTER(Name), ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t,
    ctypes.c_void_p, ctypes.c_size_t,
)  # fmt: skip


class Callbacks(ctypes.Structure):
    """What the library calls."""

    _fields_ = (("deliver", DELIVER), ("change", CHANGE))


def main() -> None:
    cpg = ctypes.CDLL("libcpg.so.4")
    handle = ctypes.c_uint64()

    def deliver(_: int, __: object, ___: int, ____: int, message: int, length: int) -> None:
        os.write(1, ctypes.string_at(message, length) + b"\n")

    callbacks = Callbacks(DELIVER(deliver), CHANGE(lambda *_: None))
    name = Name(1, b"w")
    for call in (
        lambda: cpg.cpg_initialize(ctypes.byref(handle), ctypes.byref(callbacks)),
        lambda: cpg.cpg_join(handle, ctypes.byref(name)),
    ):
        code = call()
        if code != OK:
            print(f"error {code}", flush=True)
            return
    descriptor = ctypes.c_int()
    cpg.cpg_fd_get(handle, ctypes.byref(descriptor))
    print("joined", flush=True)
    waiting, rest = [], b""
    while True:
        ready, _, _ = select.select([descriptor.value, 0], [], [], 0.01 if waiting else None)
        if descriptor.value in ready and cpg.cpg_dispatch(handle, DISPATCH_ALL) not in (OK, TRY_AGAIN):
            return
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            waiting += lines
        while waiting:
            vector = Vector(waiting[0], len(waiting[0]))
            if cpg.cpg_mcast_joined(handle, AGREED, ctypes.byref(vector), 1) != OK:
                break  # it takes nothing while the ring forms
            waiting.pop(0)


if __name__ == "__main__":
    sys.exit(main())
