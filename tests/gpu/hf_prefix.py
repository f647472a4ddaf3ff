#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hf_prefix.py - the KV cache of a transformers model goes to NVMe and comes back, bit by bit.

Usage: hf_prefix.py DIR [--library FILE] [--device cuda|cpu] [--tokens N,N...] [--size tiny|1b]

A Llama of random weights (seeded) reads a long prompt. Its KV lies in one pool of the device, whose
layout is registered with kvtier: a block is 512 tokens of all layers, keys and values. The blocks
are put durably and the process that did it ends. A new process restores them from NVMe, and once
more from HOST, straight into its pool, and goes on with 64 tokens: the logits must be equal, bit by
bit, to those of a run whose KV never left the device. For each length it prints what the first
logits of these tokens take: with the prompt computed anew, with KV from HOST, with KV from NVMe.

Needs torch and transformers, and libkvtier.so (build/lib/libkvtier.so by default). Exit code 0: all
equal; 1: not; 77: what it needs is not there, and why.
"""
import argparse
import ctypes
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from ctypes import POINTER, byref, c_int, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples"))
from decoder_loop import Cache, Get, Key, Put, Result, library_load  # noqa: E402

BLOCK_TOKENS, SUFFIX_TOKENS, WARM_TOKENS = 512, 64, 1024
KVT_SYNC, KVT_STAGE_DONE, KVT_STAGE_DURABLE = 2, 1, 2
KVT_TIER_HBM, KVT_TIER_HOST, KVT_TIER_NVME = 1, 2, 4
KVT_FOREVER = 2**64 - 1
ROUNDS = 3
SIZES = {  # layers, hidden, heads, KV heads, intermediate
    "tiny": (2, 128, 4, 2, 256),
    "1b": (24, 2048, 32, 8, 5632),
}


class Options(ctypes.Structure):
    """struct kvt_options, in full; the library takes a longer one when the rest is zero."""
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32),
                ("host_capacity_bytes", c_uint64), ("nvme_capacity_bytes", c_uint64),
                ("segment_bytes", c_uint64), ("block_bytes_max", c_uint64),
                ("index_map_bytes", c_uint64), ("entry_count_max", c_uint64),
                ("roots", c_void_p), ("root_count", c_uint32), ("io_engine", c_uint32),
                ("worker_count", c_uint32), ("request_count_max", c_uint32),
                ("lease_count_max", c_uint32), ("host_high_percent", c_uint32),
                ("host_low_percent", c_uint32), ("nvme_high_percent", c_uint32),
                ("dirty_bytes_max", c_uint64), ("relaxed_interval_ns", c_uint64),
                ("batch_delay_ns", c_uint64), ("log", c_void_p), ("log_context", c_void_p),
                ("log_level", c_uint32), ("policy", c_uint32), ("hbm_capacity_bytes", c_uint64),
                ("device_kind", c_uint32), ("device_mask", c_uint32), ("others", c_uint8 * 128)]


class Run(ctypes.Structure):
    _fields_ = [("address", c_void_p), ("region", c_uint32), ("piece_count", c_uint32),
                ("piece_bytes", c_uint64), ("piece_stride", c_uint64), ("slot_stride", c_uint64)]


class LayoutOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("run_count", c_uint32), ("runs", POINTER(Run)),
                ("slot_count", c_uint32), ("reserved0", c_uint32)]


class RegionOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("tier", c_uint32), ("address", c_void_p),
                ("size", c_uint64), ("device", c_uint32), ("reserved0", c_uint32)]


class Store(Cache):
    """A store, and the layout of one pool in it. (Cache: how calls and tickets are used.)"""

    def __init__(self, path, library_path, pool):
        self.library = library_load(library_path)
        for name, types in {
                "kvt_open": [ctypes.c_char_p, POINTER(Options), POINTER(c_void_p)],
                "kvt_region_register": [c_void_p, POINTER(RegionOptions), POINTER(c_uint32)],
                "kvt_layout_register": [c_void_p, POINTER(LayoutOptions), POINTER(c_uint32)],
                "kvt_demote_submit": [c_void_p, c_uint32, POINTER(Key), c_uint32, c_uint32,
                                      c_void_p, POINTER(c_void_p)]}.items():
            getattr(self.library, name).argtypes = types
            getattr(self.library, name).restype = c_int
        self.pool = pool
        self.block_bytes = pool.block_bytes()
        self.store, self.namespace, self.layout = c_void_p(), c_uint32(), c_uint32()
        options = Options(
            struct_size=ctypes.sizeof(Options), host_capacity_bytes=4 << 30,
            nvme_capacity_bytes=16 << 30, segment_bytes=256 << 20, block_bytes_max=64 << 20,
            worker_count=8, device_mask=1 if pool.is_cuda else 0)
        description = pool.description().encode()
        self.call("kvt_open", path.encode(), byref(options), byref(self.store))
        self.call("kvt_namespace_open", self.store, b"hf_prefix", description, len(description),
                  byref(self.namespace))
        self.layout_register()

    def layout_register(self):
        region = c_uint32()
        if self.pool.is_cuda:
            self.call("kvt_region_register", self.store, byref(RegionOptions(
                ctypes.sizeof(RegionOptions), KVT_TIER_HBM, self.pool.address(),
                self.pool.size(), 0, 0)), byref(region))
        runs = self.pool.runs(region.value)
        self.call("kvt_layout_register", self.store, byref(LayoutOptions(
            ctypes.sizeof(LayoutOptions), len(runs), runs, self.pool.blocks, 0)),
            byref(self.layout))

    def keys(self, names):
        return (Key * len(names))(*[Key(name, len(name)) for name in names])

    def keep_durably(self, names):
        keys, ticket = self.keys(names), c_void_p()
        puts = (Put * len(names))()
        for i, put in enumerate(puts):
            put.key, put.length, put.depth = keys[i], self.block_bytes, i
            put.parent = ctypes.pointer(keys[i - 1]) if i > 0 else None
            put.token_start, put.token_count = i * BLOCK_TOKENS, BLOCK_TOKENS
            put.part_count, put.layout, put.slot = self.pool.layers, self.layout.value, i
        self.call("kvt_put_submit", self.store, self.namespace, puts, len(names), KVT_SYNC, None,
                  byref(ticket))
        results = (Result * len(names))()
        self.call("kvt_ticket_wait", ticket, KVT_STAGE_DURABLE, KVT_FOREVER)
        self.call("kvt_ticket_results", ticket, KVT_STAGE_DURABLE, results, len(names))
        self.library.kvt_ticket_free(ticket)
        if any(result.status < 0 for result in results):
            raise RuntimeError(f"not kept: {[result.status for result in results]}")

    def restore(self, names):
        """The tiers that the blocks came from; all of them are in the pool now."""
        keys, ticket = self.keys(names), c_void_p()
        gets = (Get * len(names))()
        for i, get in enumerate(gets):
            get.key, get.layout, get.slot = keys[i], self.layout.value, i
        self.call("kvt_get_submit", self.store, self.namespace, gets, len(names), None,
                  byref(ticket))
        results = self.finish(ticket, len(names))
        if any(result.status != 0 for result in results):
            raise RuntimeError(f"not restored: {[result.status for result in results]}")
        return {result.tier for result in results}

    def sink(self, names):
        """To NVMe only."""
        ticket = c_void_p()
        self.call("kvt_demote_submit", self.store, self.namespace, self.keys(names), len(names),
                  KVT_TIER_NVME, None, byref(ticket))
        self.finish(ticket, len(names))


class Pool:
    """KV of one sequence: [layer, K or V, head, token, dimension], bf16."""

    def __init__(self, torch, config, blocks, device):
        self.layers, self.heads = config.num_hidden_layers, config.num_key_value_heads
        self.dimensions, self.blocks = config.head_dim, blocks
        self.is_cuda = device == "cuda"
        self.tensor = torch.full(
            (self.layers, 2, self.heads, blocks * BLOCK_TOKENS, self.dimensions), float("nan"),
            dtype=torch.bfloat16, device=device)

    def block_bytes(self):
        return self.layers * 2 * self.heads * BLOCK_TOKENS * self.dimensions * 2

    def description(self):
        return (f"random Llama, {self.layers} layers, {self.heads} KV heads of {self.dimensions}, "
                f"bf16, blocks of {BLOCK_TOKENS} tokens, layer by layer")

    def address(self):
        return self.tensor.data_ptr()

    def size(self):
        return self.tensor.numel() * 2

    def runs(self, region):
        """One run a layer: the pieces are the heads of K and of V."""
        piece = BLOCK_TOKENS * self.dimensions * 2
        stride = piece * self.blocks
        return (Run * self.layers)(*[
            Run(self.address() + layer * 2 * self.heads * stride, region, 2 * self.heads, piece,
                stride, piece) for layer in range(self.layers)])

    def forget(self):
        self.tensor.fill_(float("nan"))


# --- The model ------------------------------------------------------------------------------------

class Model:
    def __init__(self, torch, transformers, size, device, length):
        layers, hidden, heads, kv_heads, intermediate = SIZES[size]
        torch.manual_seed(7)
        self.torch, self.transformers, self.device = torch, transformers, device
        self.config = transformers.LlamaConfig(
            num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads,
            num_key_value_heads=kv_heads, intermediate_size=intermediate, vocab_size=32000,
            max_position_embeddings=length + SUFFIX_TOKENS, torch_dtype=torch.bfloat16)
        with torch.device(device):
            self.model = transformers.LlamaForCausalLM(self.config).to(torch.bfloat16).eval()
        generator = torch.Generator().manual_seed(11)
        tokens = torch.randint(0, 32000, (1, length + SUFFIX_TOKENS), generator=generator)
        self.tokens = tokens.to(device)

    def sync(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def forward(self, tokens, cache):
        with self.torch.no_grad():
            return self.model(tokens, past_key_values=cache, use_cache=True,
                              logits_to_keep=SUFFIX_TOKENS)

    def prefill(self, length):
        cache = self.transformers.DynamicCache()
        self.forward(self.tokens[:, :length], cache)
        return cache

    def go_on(self, cache, length):
        """The logits of the tokens behind the prompt."""
        return self.forward(self.tokens[:, length:length + SUFFIX_TOKENS], cache).logits

    def cache_of(self, pool, length):
        """A cache of what lies in the pool."""
        cache = self.transformers.DynamicCache()
        for layer in range(self.config.num_hidden_layers):
            cache.update(pool.tensor[layer, 0, :, :length].unsqueeze(0),
                         pool.tensor[layer, 1, :, :length].unsqueeze(0), layer)
        return cache

    def into_pool(self, cache, pool, length):
        for layer in range(self.config.num_hidden_layers):
            keys, values = layer_of(cache, layer)
            pool.tensor[layer, 0, :, :length].copy_(keys[0, :, :length])
            pool.tensor[layer, 1, :, :length].copy_(values[0, :, :length])

    def names(self, length):
        """A block's key names all tokens up to its end."""
        tokens = self.tokens[0, :length].tolist()
        digest, names = hashlib.sha256(), []
        for i in range(0, length, BLOCK_TOKENS):
            digest.update(json.dumps(tokens[i:i + BLOCK_TOKENS]).encode())
            names.append(digest.digest())
        return names


def layer_of(cache, layer):
    if hasattr(cache, "layers"):
        return cache.layers[layer].keys, cache.layers[layer].values
    return cache.key_cache[layer], cache.value_cache[layer]


def bits_hash(torch, logits):
    return hashlib.sha256(logits.view(torch.int16).cpu().numpy().tobytes()).hexdigest()


# --- The two processes ----------------------------------------------------------------------------

def seconds_of(model, work):
    """The median of some rounds, and what the last one gave."""
    times = []
    for _ in range(ROUNDS):
        model.sync()
        begin = time.monotonic()
        result = work()
        model.sync()
        times.append(time.monotonic() - begin)
    return sorted(times)[ROUNDS // 2], result


def keeper(model, pool, store, lengths):
    """Computes, keeps, and tells the logits of a run whose KV stayed where it was."""
    rows = {}
    for length in lengths:
        def compute(tokens=length):
            cache = model.prefill(tokens)
            return cache, model.go_on(cache, tokens)
        seconds, (_, logits) = seconds_of(model, compute)
        cache = model.prefill(length)
        model.into_pool(cache, pool, length)
        model.sync()
        store.keep_durably(model.names(length))
        rows[length] = {"recompute_seconds": seconds, "logits": bits_hash(model.torch, logits)}
    return rows


def restorer(model, pool, store, lengths):
    rows = {}
    for length in lengths:
        names = model.names(length)
        row = {}
        for tier, name in ((KVT_TIER_NVME, "nvme"), (KVT_TIER_HOST, "host")):
            times = []
            for _ in range(ROUNDS):
                if tier == KVT_TIER_NVME:
                    store.sink(names)
                pool.forget()
                model.sync()
                begin = time.monotonic()
                tiers = store.restore(names)
                logits = model.go_on(model.cache_of(pool, length), length)
                model.sync()
                times.append(time.monotonic() - begin)
                if tiers != {tier}:
                    raise RuntimeError(f"blocks came from {tiers}, not from {name}")
            row[f"{name}_seconds"] = sorted(times)[ROUNDS // 2]
            row[f"{name}_logits"] = bits_hash(model.torch, logits)
        rows[length] = row
    return rows


def role_run(arguments):
    import torch
    import transformers
    lengths = [int(length) for length in arguments.tokens.split(",")]
    model = Model(torch, transformers, arguments.size, arguments.device, max(lengths))
    pool = Pool(torch, model.config, max(lengths) // BLOCK_TOKENS, arguments.device)
    store = Store(arguments.directory, arguments.library, pool)
    model.go_on(model.prefill(min(WARM_TOKENS, max(lengths))), min(WARM_TOKENS, max(lengths)))
    rows = (keeper if arguments.role == "keep" else restorer)(model, pool, store, lengths)
    store.close()
    print(json.dumps(rows))
    return 0


def part_run(arguments, role):
    words = [sys.executable, os.path.abspath(__file__), arguments.directory, "--library",
             arguments.library, "--device", arguments.device, "--tokens", arguments.tokens,
             "--size", arguments.size, "--role", role]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=False, text=True)
    if done.returncode != 0:
        sys.exit(1)
    return json.loads(done.stdout.splitlines()[-1])


def missing(arguments):
    """Why it cannot run here; empty: it can."""
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError as error:
        return str(error)
    if arguments.device == "cuda" and not torch.cuda.is_available():
        return "there is no GPU"
    return "" if os.path.exists(arguments.library) else f"{arguments.library} is not there"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--library", default="build/lib/libkvtier.so")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tokens", default="2048,8192,32768")
    parser.add_argument("--size", choices=sorted(SIZES), default="1b")
    parser.add_argument("--role", choices=("keep", "restore"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    why = missing(arguments)
    if why:
        print(f"skipped: {why}")
        return 77
    if arguments.role:
        return role_run(arguments)
    kept = part_run(arguments, "keep")
    restored = part_run(arguments, "restore")
    shutil.rmtree(arguments.directory)
    is_equal = True
    for length, row in restored.items():
        equal = {name: row[f"{name}_logits"] == kept[length]["logits"] for name in ("host", "nvme")}
        is_equal = is_equal and all(equal.values())
        print(json.dumps({
            "tokens": int(length),
            "recompute_ms": round(kept[length]["recompute_seconds"] * 1e3, 2),
            "host_ms": round(row["host_seconds"] * 1e3, 2),
            "nvme_ms": round(row["nvme_seconds"] * 1e3, 2),
            "host_is_equal": equal["host"], "nvme_is_equal": equal["nvme"]}))
    print("passed" if is_equal else "FAILED: other logits")
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
