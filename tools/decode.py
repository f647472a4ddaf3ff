#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""decode.py - what the files of a closed store say, decoded from tiers/FORMAT.md alone.

Usage: decode.py DIR [--json]. Prints STORE, NAMES and every valid batch header of every segment,
one line each (with --json: a JSON object each), and the trailer of each block that is made of
parts, if it can be one; the last line is a summary. Exit code 1 when the
store cannot be read at all, 2 for wrong arguments.

Checked: magics, CRCs (CRC32C), bounds, places and MACs (BLAKE2b). Not checked: the checksums of
payloads and trailers, and the fingerprints, because Python's standard library has no XXH3-128;
what encoded parts hold, because it has no zstd; the index (LMDB).
Only headers that are valid by FORMAT.md section 4 are shown; `counts` says whether their generation
is the highest of their segment. Section numbers below are FORMAT.md's.
"""
import errno
import hashlib
import hmac
import json
import mmap
import os
import stat
import struct
import sys

PAGE = 4096
STORE_MAGIC = 0xA4D3C1E7
NAMES_MAGIC = 0x9BD25A6E
BATCH_MAGIC = 0x7E91F3B5
BLOCKS_MAX = 1024
KILLS_MAX = 4096
BLOCK_BYTES_MAX = 64 << 20
RECORD_BYTES = 100  # Of a record, before the key's bytes.
PARTS_MAX = 64
NOTE_BYTES = 24  # Of a part, in the trailer.


class Invalid(Exception):
    """Why some bytes are not what they should be."""


def need(condition, reason):
    if not condition:
        raise Invalid(reason)


# --- Checksums (section 1) -----------------------------------------------------------------------

def crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC_TABLE = crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def mac_of(secret, data):
    return hashlib.blake2b(data, digest_size=32, key=secret).digest()


def u16(data, at):
    return struct.unpack_from("<H", data, at)[0]


def u32(data, at):
    return struct.unpack_from("<I", data, at)[0]


def u64(data, at):
    return struct.unpack_from("<Q", data, at)[0]


def hash128(data, at):
    """Two u64, high half first, as 32 hexadecimal digits."""
    return f"{u64(data, at):016x}{u64(data, at + 8):016x}"


def pages_of(size):
    return (size + PAGE - 1) // PAGE


def is_zero(data):
    return not any(data)


# --- STORE (section 3.1) -------------------------------------------------------------------------

def store_decode(data):
    need(len(data) == PAGE, "its size is not 4096")
    need(u32(data, 0) == STORE_MAGIC, "its magic is another")
    need(u32(data, 4) == crc32c(data[8:]), "its CRC differs")
    store = {
        "sequence": u64(data, 8),
        "version_major": u16(data, 16),
        "version_minor": u16(data, 18),
        "features_needed": u64(data, 24),
        "features_to_write": u64(data, 32),
        "uuid": data[40:56].hex(),
        "created_ns": u64(data, 88),
        "open_epoch": u32(data, 96),
        "segment_pages": u32(data, 100),
        "block_bytes_max": u64(data, 104),
        "map_bytes": u64(data, 112),
        "root_count": u32(data, 120),
    }
    need(store["version_major"] == 1, f"its version is {store['version_major']}")
    if store["version_minor"] <= 1:
        reserved = data[20:24] + data[124:128] + data[3392:]
        need(is_zero(reserved), "its reserved bytes are not zero")
    need(store["sequence"] > 0, "its sequence is 0")
    need(1 <= store["open_epoch"] < 1 << 24, "its open epoch is impossible")
    pages = store["segment_pages"]
    need(256 <= pages <= 262144 and pages & (pages - 1) == 0, "its segment size is impossible")
    need(1 <= store["block_bytes_max"] <= BLOCK_BYTES_MAX, "its block size is impossible")
    need(1 <= store["root_count"] <= 8, "its number of roots is impossible")
    store["roots"] = []
    for number in range(8):
        path = data[192 + 400 * number:592 + 400 * number]
        end = path.find(0)
        need(end >= 0 and is_zero(path[end:]), "a root's path is not padded with zeros")
        size = u64(data, 128 + 8 * number)
        if number < store["root_count"]:
            store["roots"].append({"bytes": size, "path": path[:end].decode("utf-8", "replace")})
        else:
            need(end == 0 and size == 0, "it names more roots than it has")
    return store, data[56:88]


# --- NAMES (section 3.2) -------------------------------------------------------------------------

def names_decode(data, uuid):
    need(len(data) >= 64, "it is shorter than its head")
    need(u32(data, 0) == NAMES_MAGIC, "its magic is another")
    need(u32(data, 36) == len(data), "its length is another")
    need(u32(data, 4) == crc32c(data[8:]), "its CRC differs")
    need(data[16:32].hex() == uuid, "it belongs to another store")
    need(is_zero(data[40:64]), "its reserved bytes are not zero")
    count = u32(data, 32)
    need(count <= 4096, "its number of entries is impossible")
    names = {"sequence": u64(data, 8), "entries": []}
    at = 64
    for _ in range(count):
        need(len(data) - at >= 16, "an entry is outside of it")
        number, epoch, name_length, description_length = struct.unpack_from("<IIII", data, at)
        used = 16 + name_length + description_length
        padded = (used + 7) // 8 * 8
        need(number > 0 and epoch > 0, "an entry has id or epoch 0")
        need(1 <= name_length <= 255 and description_length <= 4096,
             "an entry has an impossible length")
        need(len(data) - at >= padded, "an entry is outside of it")
        need(is_zero(data[at + used:at + padded]), "its padding is not zero")
        name = data[at + 16:at + 16 + name_length]
        names["entries"].append({
            "id": number,
            "epoch": epoch,
            "name": name.decode("utf-8", "replace"),
            "description": data[at + 16 + name_length:at + used].hex(),
        })
        at += padded
    need(at == len(data), "it has bytes behind its last entry")
    return names


# --- Block records (section 3.4) -----------------------------------------------------------------

def record_known(data, key_length):
    need(data[0] == 1, "a record's version is another")
    need(data[1] == 1 or (data[1] == 2 and key_length == 32), "a key's form is impossible")
    codec, part_count = data[3], data[6]
    need(codec <= 1, "a record has a codec of another version")
    need(data[7] <= 3, "a record's hint is impossible")
    need(is_zero(data[30:32]) and is_zero(data[92:96]), "a record's reserved bytes are not zero")
    length, stored_length = u32(data, 32), u32(data, 36)
    need(1 <= length <= BLOCK_BYTES_MAX, "a length is impossible")
    if codec == 0:
        need(part_count == 1 and stored_length == length, "a plain block is not stored as it is")
    else:
        need(1 <= part_count <= PARTS_MAX and length % part_count == 0, "parts are impossible")
        raw = length + NOTE_BYTES * part_count
        need(NOTE_BYTES * part_count < stored_length <= raw, "a stored length is impossible")
        need(stored_length == raw or pages_of(stored_length) < pages_of(raw),
             "a block is encoded for nothing")


def record_decode(data, segment, page):
    """None: it is whole, and of a later version (section 9)."""
    key_length = data[2]
    need(1 <= key_length <= 64 and len(data) == RECORD_BYTES + key_length,
         "a record's size is not that of its key")
    key = data[RECORD_BYTES:]
    need(u32(data, 96) == crc32c(data[:96] + key + struct.pack(">II", segment, page)),
         "a record's CRC differs")
    try:
        record_known(data, key_length)
    except Invalid:
        return None
    codec, part_count = data[3], data[6]
    length, stored_length = u32(data, 32), u32(data, 36)
    return {
        "key_form": data[1],
        "key": key.hex(),
        "component": u16(data, 4),
        "codec": codec,
        "part_count": part_count,
        "hint": data[7],
        "namespace_id": u32(data, 8),
        "namespace_epoch": u32(data, 12),
        "sequence": u64(data, 16),
        "generation": u32(data, 24),
        "class_id": u16(data, 28),
        "length": length,
        "stored_length": stored_length,
        "checksum": hash128(data, 40),
        "parent": hash128(data, 56),
        "depth": u32(data, 72),
        "token_start": u32(data, 76),
        "token_count": u32(data, 80),
        "recompute_us": u32(data, 84),
        "importance": u32(data, 88),
    }


# --- Parts and trailer (section 3.6) -------------------------------------------------------------

def trailer_decode(data, block):
    """What the notes of a block's parts say; `data` are its stored bytes."""
    count, part_bytes = block["part_count"], block["length"] // block["part_count"]
    at = block["stored_length"] - NOTE_BYTES * count
    need(len(data) == block["stored_length"], "its file ends before it")
    parts = []
    for note in range(at, len(data), NOTE_BYTES):
        size, codec = u32(data, note + 16), data[note + 20]
        need(codec <= 2 and is_zero(data[note + 21:note + 24]), "a note is impossible")
        need(size == part_bytes if codec == 0 else 1 <= size < part_bytes,
             "a part's length is impossible")
        parts.append({"codec": codec, "stored_length": size, "checksum": hash128(data, note)})
    need(sum(part["stored_length"] for part in parts) == at, "parts do not fill the extent")
    return parts


def trailers_show(data, header, show):
    """The trailers of a header's blocks; `data` are the bytes of its segment."""
    for block in header["blocks"]:
        at = block["page"] * PAGE
        if block["codec"] != 1:
            continue
        try:
            parts = trailer_decode(data[at:at + block["stored_length"]], block)
        except Invalid:
            continue
        show({"type": "parts", "segment": header["segment"], "page": block["page"],
              "parts": parts})


# --- Batch headers (sections 3.3 and 4) ----------------------------------------------------------

def blocks_decode(data, header, at):
    blocks = []
    place = header["page"] + header["header_pages"]
    end = header["page"] + header["total_pages"]
    for _ in range(header["block_count"]):
        need(len(data) - at >= 8, "an entry is outside of its header")
        size, page = struct.unpack_from("<II", data, at)
        at += 8
        need(RECORD_BYTES < size <= RECORD_BYTES + 64 and size <= len(data) - at,
             "an entry is outside of its header")
        block = record_decode(data[at:at + size], header["segment"], page)
        at += size
        pages = 1 if block is None else pages_of(block["stored_length"])
        need(place <= page and page + pages <= end, "a payload is outside of its run")
        place = page + pages
        if block is None:
            continue
        need(block["generation"] == header["generation"], "a record has another generation")
        block["page"] = page
        blocks.append(block)
    return blocks, at


def kills_decode(data, header, at):
    padded = (at + 7) // 8 * 8
    need(is_zero(data[at:padded]), "padding is not zero")
    at = padded
    need(len(data) - at >= 40 * header["kill_count"], "kill entries are outside of their header")
    kills = []
    for _ in range(header["kill_count"]):
        segment, generation, page, reserved = struct.unpack_from("<IIII", data, at)
        need(reserved == 0, "a kill entry's reserved bytes are not zero")
        kills.append({"segment": segment, "generation": generation, "page": page,
                      "fingerprint": hash128(data, at + 16), "sequence": u64(data, at + 32)})
        at += 40
    need(is_zero(data[at:]), "there are bytes behind the last entry")
    return kills


def fixed_decode(data):
    """The fixed part; only what is needed to find the rest is believed before the MAC is."""
    need(u16(data, 4) == 1, "its version is another")
    flags = u16(data, 6)
    need(flags <= 1, "its flags are unknown")
    need(is_zero(data[52:56]) and is_zero(data[96:128]), "its reserved bytes are not zero")
    header = {
        "segment": u32(data, 24),
        "generation": u32(data, 28),
        "page": u32(data, 32),
        "header_pages": u32(data, 36),
        "total_pages": u32(data, 40),
        "block_count": u32(data, 44),
        "kill_count": u32(data, 48),
        "sequence": u64(data, 56),
        "is_recycle": flags == 1,
    }
    need(header["generation"] > 0, "its generation is 0")
    need(header["block_count"] <= BLOCKS_MAX and header["kill_count"] <= KILLS_MAX,
         "its counts are impossible")
    front = 1 if header["kill_count"] == 0 else 0  # Page 1 has a copy of one without kills.
    need(not header["is_recycle"] or (header["block_count"] == 0 and header["page"] <= front),
         "a recycle header has blocks or stands elsewhere than in front")
    return header


def batch_decode(data, at, place, store, secret):
    """The header at byte `at` of a segment's bytes; `place` is (segment, page)."""
    header = fixed_decode(data[at:at + PAGE])
    need(data[at + 8:at + 24].hex() == store["uuid"], "it belongs to another store")
    need((header["segment"], header["page"]) == place, "it belongs elsewhere")
    left = store["segment_pages"] - header["page"]
    need(1 <= header["header_pages"] <= header["total_pages"] <= left, "its run is impossible")
    data = data[at:at + header["header_pages"] * PAGE]
    need(len(data) == header["header_pages"] * PAGE, "its file ends before it")
    proof = mac_of(secret, data[:64] + bytes(32) + data[96:])
    need(hmac.compare_digest(proof, data[64:96]), "its MAC differs")
    header["blocks"], end = blocks_decode(data, header, 128)
    header["kills"] = kills_decode(data, header, end)
    return header


def segment_decode(data, number, store, secret, tally):
    """Every valid header of one segment; each page may be one, so each is looked at."""
    found = []
    for page in range(len(data) // PAGE):
        if u32(data, page * PAGE) != BATCH_MAGIC:
            continue
        try:
            found.append(batch_decode(data, page * PAGE, (number, page), store, secret))
        except Invalid:
            tally["headers_refused"] += 1
    highest = max((header["generation"] for header in found), default=0)
    shown = []
    for header in found:
        header["counts"] = header["generation"] == highest
        before = shown[-1] if shown else header
        if header["page"] == 1 and header["is_recycle"] and before["page"] == 0 and \
                (before["generation"], before["sequence"]) == \
                (header["generation"], header["sequence"]):
            continue  # The copy of a recycle header that is whole.
        shown.append(header)
    return shown


# --- Files ---------------------------------------------------------------------------------------

def regular_open(path):
    """Anything else in a file's place, like a pipe, would keep us waiting."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no regular file")
    return file


def file_read(path):
    try:
        with regular_open(path) as file:
            return file.read()
    except OSError as problem:
        raise Invalid(problem.strerror) from None


def copies_decode(directory, name, decode, show):
    """Both copies of STORE or NAMES; the valid one with the highest sequence, or None."""
    best = None
    for suffix in "ab":
        line = {"type": name.lower(), "file": f"{name}.{suffix}"}
        try:
            value = decode(file_read(os.path.join(directory, line["file"])))
        except Invalid as problem:
            show({**line, "valid": False, "reason": str(problem)})
            continue
        fields = value[0] if isinstance(value, tuple) else value
        show({**line, "valid": True, **fields})
        if best is None or fields["sequence"] > best[0]:
            best = (fields["sequence"], value)
    return best and best[1]


def root_decode(directory, number, store, secret, show, tally):
    path = store["roots"][number]["path"] or os.path.join(directory, "data")
    path = os.path.join(path, "data.00")
    size = store["segment_pages"] * PAGE
    try:
        with regular_open(path) as file:
            if os.fstat(file.fileno()).st_size == 0:
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                for index in range((len(data) + size - 1) // size):
                    part = data[index * size:(index + 1) * size]
                    tally["segments"] += 1
                    for header in segment_decode(part, number << 24 | index, store, secret, tally):
                        tally["batches"] += 1
                        tally["blocks"] += header["block_count"]
                        show({"type": "batch", **header})
                        if header["counts"]:
                            trailers_show(part, header, show)
    except OSError as problem:
        show({"type": "root", "number": number, "path": path, "reason": problem.strerror})


def text_print(text):
    """Names must not reach the terminal as commands to it."""
    print("".join("?" if ord(each) < 32 or 127 <= ord(each) < 160 else each for each in text))


def text_show(line):
    """One line for people: nested lists go below their parent."""
    nested = {name: value for name, value in line.items() if isinstance(value, list)}
    flat = [f"{name}={value}" for name, value in line.items() if name not in nested]
    text_print(" ".join(flat))
    for name, items in nested.items():
        for item in items:
            text_print(f"    {name}: " + " ".join(f"{key}={value}" for key, value in item.items()))


def json_show(line):
    print(json.dumps(line))


def main(arguments):
    options = [argument for argument in arguments if argument.startswith("-")]
    directories = [argument for argument in arguments if not argument.startswith("-")]
    if len(directories) != 1 or any(option != "--json" for option in options):
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    directory = directories[0]
    show = json_show if options else text_show
    found = copies_decode(directory, "STORE", store_decode, show)
    if found is None:
        print(f"{directory}: neither STORE.a nor STORE.b is valid", file=sys.stderr)
        return 1
    store, secret = found
    copies_decode(directory, "NAMES", lambda data: names_decode(data, store["uuid"]), show)
    tally = {"segments": 0, "batches": 0, "blocks": 0, "headers_refused": 0}
    for number in range(store["root_count"]):
        root_decode(directory, number, store, secret, show, tally)
    show({"type": "summary", **tally,
          "not_checked": "payload checksums and fingerprints (XXH3-128)"})
    return 0


def run():
    """main(), and what it printed is written, or the exit code says that it could not be."""
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        code = 0
    except OSError as problem:
        print(f"decode.py: the output could not be written: {problem.strerror}", file=sys.stderr)
        code = 1
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # For the flush of the exit.
    return code


if __name__ == "__main__":
    sys.exit(run())
