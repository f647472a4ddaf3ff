#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""decoder_loop.py - decoder_loop.c for Python: the C interface by ctypes, in host memory.

Usage: decoder_loop.py DIR [LIBRARY]. Nothing but the standard library and libkvtier.so
(build/lib/libkvtier.so by default). It computes the same rows and names them by the same keys as
decoder_loop.c: each finds the other's blocks.
"""
import ctypes
import struct
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint8, c_uint16, c_uint32
from ctypes import c_uint64, c_void_p

DIMENSIONS, BLOCK_TOKENS, ANSWER_TOKENS = 32, 16, 20
BLOCK_BYTES = BLOCK_TOKENS * 2 * DIMENSIONS * 4
KVT_RELAXED, KVT_STAGE_DONE, KVT_FOREVER = 1, 1, 2**64 - 1
MASK = 0xFFFFFFFF


# --- include/kvtier/kvtier.h: what is used of it --------------------------------------------------

class Options(ctypes.Structure):
    """The fields of struct kvt_options that are set here. Zero is the default of all others, and
    the library takes a struct that is longer than its own when the rest is zero."""
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32),
                ("host_capacity_bytes", c_uint64), ("nvme_capacity_bytes", c_uint64),
                ("others", c_uint8 * 232)]


class Key(ctypes.Structure):
    _fields_ = [("bytes", c_char_p), ("length", c_uint32), ("component", c_uint16),
                ("reserved0", c_uint16)]


class Put(ctypes.Structure):
    _fields_ = [("key", Key), ("parent", POINTER(Key)), ("source", c_void_p),
                ("length", c_uint64), ("region", c_uint32), ("flags", c_uint32),
                ("depth", c_uint32), ("token_start", c_uint32), ("token_count", c_uint32),
                ("recompute_us", c_uint32), ("importance", c_uint32), ("class_id", c_uint16),
                ("hint", c_uint8), ("tier", c_uint8), ("device", c_uint32),
                ("part_count", c_uint16), ("reserved0", c_uint16), ("layout", c_uint32),
                ("slot", c_uint32), ("runs", c_void_p), ("run_count", c_uint32),
                ("reserved1", c_uint32)]


class Get(ctypes.Structure):
    _fields_ = [("key", Key), ("destination", c_void_p), ("capacity", c_uint64),
                ("flags", c_uint32), ("region", c_uint32), ("part_first", c_uint16),
                ("part_count", c_uint16), ("reserved0", c_uint32), ("layout", c_uint32),
                ("slot", c_uint32), ("runs", c_void_p), ("run_count", c_uint32),
                ("reserved1", c_uint32)]


class Result(ctypes.Structure):
    _fields_ = [("status", c_int), ("tier", c_uint32), ("length", c_uint64)]


class Error(ctypes.Structure):
    _fields_ = [("status", c_int), ("foreign_code", c_int), ("text", c_char_p)]


def library_load(path):
    library = ctypes.CDLL(path)
    arguments = {  # kvt_namespace and kvt_lease are structs of one integer: passed as that.
        "kvt_open": [c_char_p, POINTER(Options), POINTER(c_void_p)],
        "kvt_close": [c_void_p],
        "kvt_namespace_open": [c_void_p, c_char_p, c_char_p, c_size_t, POINTER(c_uint32)],
        "kvt_lookup": [c_void_p, c_uint32, POINTER(Key), c_uint32, POINTER(c_uint8),
                       POINTER(c_uint32), POINTER(c_uint64)],
        "kvt_lease_release": [c_void_p, c_uint64],
        "kvt_get_submit": [c_void_p, c_uint32, POINTER(Get), c_uint32, c_void_p, POINTER(c_void_p)],
        "kvt_put_submit": [c_void_p, c_uint32, POINTER(Put), c_uint32, c_int, c_void_p,
                           POINTER(c_void_p)],
        "kvt_ticket_wait": [c_void_p, c_uint32, c_uint64],
        "kvt_ticket_results": [c_void_p, c_uint32, POINTER(Result), c_uint32],
        "kvt_ticket_free": [c_void_p],
        "kvt_last_error": [POINTER(Error)],
    }
    for name, types in arguments.items():
        function = getattr(library, name)
        function.argtypes = types
        function.restype = None if name in ("kvt_lease_release", "kvt_ticket_free",
                                            "kvt_last_error") else c_int
    return library


class Cache:
    """A store, as a decoder uses it."""

    def __init__(self, path, library_path):
        self.library = library_load(library_path)
        self.store, self.namespace = c_void_p(), c_uint32()
        options = Options(ctypes.sizeof(Options), 0, 64 << 20, 64 << 20)
        model = b"toy decoder 1: 32 dimensions, 16 tokens a block, little endian"
        self.call("kvt_open", path.encode(), byref(options), byref(self.store))
        self.call("kvt_namespace_open", self.store, b"toy", model, len(model),
                  byref(self.namespace))

    def call(self, name, *arguments):
        """An error is an exception with the library's sentence."""
        status = getattr(self.library, name)(*arguments)
        if status < 0:
            error = Error()
            self.library.kvt_last_error(byref(error))
            raise RuntimeError(f"{name}: {error.text.decode()}")
        return status

    def finish(self, ticket, count):
        results = (Result * count)()
        self.call("kvt_ticket_wait", ticket, KVT_STAGE_DONE, KVT_FOREVER)
        self.call("kvt_ticket_results", ticket, KVT_STAGE_DONE, results, count)
        self.library.kvt_ticket_free(ticket)
        return results

    def read(self, names):
        """The bytes of the longest known prefix of a chain of blocks."""
        keys = (Key * len(names))(*[Key(name, len(name)) for name in names])
        found, lease, ticket = c_uint32(), c_uint64(), c_void_p()
        self.call("kvt_lookup", self.store, self.namespace, keys, len(names), None, byref(found),
                  byref(lease))
        blocks = []
        if found.value > 0:
            memory = ctypes.create_string_buffer(found.value * BLOCK_BYTES)
            gets = (Get * found.value)()
            for i, get in enumerate(gets):
                get.key, get.capacity = keys[i], BLOCK_BYTES
                get.destination = ctypes.addressof(memory) + i * BLOCK_BYTES
            self.call("kvt_get_submit", self.store, self.namespace, gets, found, None,
                      byref(ticket))
            for i, result in enumerate(self.finish(ticket, found.value)):
                if result.status != 0:  # Damaged, say: it is computed like any other.
                    break
                blocks.append(memory.raw[i * BLOCK_BYTES:(i + 1) * BLOCK_BYTES])
        self.library.kvt_lease_release(self.store, lease)
        return blocks

    def keep(self, names, first, blocks):
        """Keeps blocks[i] as names[first + i]."""
        if not blocks:
            return
        keys = (Key * len(names))(*[Key(name, len(name)) for name in names])
        memory, ticket = [ctypes.create_string_buffer(block, BLOCK_BYTES) for block in blocks], \
            c_void_p()
        puts = (Put * len(blocks))()
        for i, put in enumerate(puts, first):
            put.key, put.length, put.depth = keys[i], BLOCK_BYTES, i
            put.source = ctypes.addressof(memory[i - first])
            put.parent = ctypes.pointer(keys[i - 1]) if i > 0 else None
            put.token_start, put.token_count = i * BLOCK_TOKENS, BLOCK_TOKENS
        self.call("kvt_put_submit", self.store, self.namespace, puts, len(blocks), KVT_RELAXED,
                  None, byref(ticket))
        for result in self.finish(ticket, len(blocks)):
            if result.status < 0:
                print(f"a block was not kept: status {result.status}", file=sys.stderr)

    def close(self):
        self.call("kvt_close", self.store)


# --- The decoder ----------------------------------------------------------------------------------

def mix(x):
    x = (x ^ x >> 16) * 0x85EBCA6B & MASK
    x = (x ^ x >> 13) * 0xC2B2AE35 & MASK
    return x ^ x >> 16


def row_compute(tokens, rows):
    """Appends the next row, (key, value): it attends to all rows before it."""
    position = len(rows)
    query = [mix((tokens[position] * DIMENSIONS + d) & MASK) for d in range(DIMENSIONS)]
    context = [0] * DIMENSIONS
    for key, value in rows:
        weight = (sum(map(int.__mul__, query, key)) & MASK) >> 28
        context = [c + weight * v for c, v in zip(context, value)]
    rows.append(([mix(q ^ position) for q in query],
                 [mix((c + q) & MASK) for c, q in zip(context, query)]))


def names_make(tokens):
    """The key of each full block: it names all tokens up to the block's end."""
    lanes, names = [0xCBF29CE484222325, 0x84222325CBF29CE4], []
    for position, token in enumerate(tokens, 1):
        for lane, bits in enumerate((token, ~token & MASK)):
            lanes[lane] = (lanes[lane] ^ bits) * 0x100000001B3 & (2**64 - 1)
        if position % BLOCK_TOKENS == 0:
            names.append(struct.pack("<2Q", *lanes))
    return names


def block_pack(rows):
    return b"".join(struct.pack(f"<{2 * DIMENSIONS}I", *key, *value) for key, value in rows)


def block_unpack(block):
    numbers = struct.iter_unpack(f"<{2 * DIMENSIONS}I", block)
    return [(list(row[:DIMENSIONS]), list(row[DIMENSIONS:])) for row in numbers]


def request_serve(cache, tokens, name):
    """Answers what is in `tokens`. True: with the rows that a decoder without a cache computes."""
    names, computed = names_make(tokens), 0
    asked, end = len(names), len(tokens) + ANSWER_TOKENS
    rows = [row for block in cache.read(names) for row in block_unpack(block)]
    found = len(rows) // BLOCK_TOKENS
    while len(rows) < end:
        if len(rows) == len(tokens):
            tokens.append(mix(rows[-1][1][0]) % 50000)
        row_compute(tokens, rows)
        computed += 1
    names = names_make(tokens)
    cache.keep(names, found, [block_pack(rows[i * BLOCK_TOKENS:(i + 1) * BLOCK_TOKENS])
                              for i in range(found, len(names))])
    plain = []
    while len(plain) < end:
        row_compute(tokens, plain)
    print(f"{name:<9} {len(tokens):3} tokens, {found:2} of {asked:2} blocks found, {computed:3} "
          f"rows computed, answer ends with {tokens[-1]:5}, "
          f"{'right' if plain == rows else 'WRONG'}")
    return plain == rows


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: decoder_loop.py DIR [LIBRARY]")
    cache = Cache(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "build/lib/libkvtier.so")
    talk = [mix(i) % 50000 for i in range(70)]  # The system prompt.
    stranger = talk + [7]
    right = []
    for turn in range(3):
        talk += [mix(1000 * (turn + 1) + i) % 50000 for i in range(12)]
        right.append(request_serve(cache, talk, "turn"))
    right.append(request_serve(cache, stranger, "stranger"))
    cache.close()
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
