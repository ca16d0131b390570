#!/usr/bin/env python3
"""A model of any family with random weights of its published size, from configurations alone.

    tools/random_model.py build/app/xdit CONFIG_DIR OUT [--tokenizer DIR] [--shard_gb 5]

CONFIG_DIR has model_index.json and the config.json of each component, as tools/fetch_configs.py
fetches them; xdit tells names and shapes of the tensors. OUT gets the configurations and bf16
weights in shards with an index, as published models have them. Numbers have the sizes of an
untrained network, so that nothing overflows and no image is meant. They repeat after a million and
begin at a place that follows from the tensor's name: the same files everywhere, at the speed of the
disk. --tokenizer is copied where CONFIG_DIR has no tokenizer. Needs Python alone.
"""
import argparse
import array
import json
import math
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import zlib

PERIOD = 1 << 20


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("xdit")
    p.add_argument("config", type=pathlib.Path)
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--tokenizer", type=pathlib.Path)
    p.add_argument("--shard_gb", type=float, default=5)
    return p.parse_args()


def tensors_of(xdit, config, part):
    """[(name, shape)] of a component."""
    run = subprocess.run([xdit, "inspect", str(config), "--tensors", part, "--json"],
                         stdout=subprocess.PIPE, text=True, check=False)
    try:
        listed = json.loads(run.stdout)["tensors"]
    except (ValueError, KeyError):
        sys.exit(f"random_model: {xdit} lists no tensors of {part} in {config}")
    return [(t["name"].split("|")[0], t["shape"]) for t in listed]


def bf16(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16


class Numbers:
    """Tables of random numbers, one for each mean and spread, as bytes of bf16."""

    def __init__(self):
        r = random.Random(1)
        self.plain = [r.uniform(-1.7, 1.7) for _ in range(PERIOD)]
        self.tables = {}

    def table(self, mean, spread):
        key = (mean, spread)
        if key not in self.tables:
            values = array.array("H", (bf16(mean + spread * v) for v in self.plain))
            if sys.byteorder == "big":
                values.byteswap()
            self.tables[key] = values.tobytes()
        return self.tables[key]

    def write(self, f, name, shape):
        """Gains around one, small biases, and matrices that keep the size of what they read."""
        if len(shape) == 1:
            one = name.endswith("weight")
            mean, spread = (1.0, 0.1) if one else (0.0, 0.02)
        else:
            # one table for widths of about the same size
            mean, spread = 0.0, 2.0 ** round(math.log2(0.9 / math.sqrt(math.prod(shape[1:]))))
        data = self.table(mean, spread)
        at, left = zlib.crc32(name.encode()) % PERIOD * 2, 2 * math.prod(shape)
        while left:
            piece = data[at:at + left]
            f.write(piece)
            left -= len(piece)
            at = 0


def shards_of(tensors, most):
    """Lists of tensors of at most `most` bytes, or of one tensor."""
    shards, size = [[]], 0
    for name, shape in tensors:
        n = 2 * math.prod(shape)
        if size and size + n > most:
            shards.append([])
            size = 0
        shards[-1].append((name, shape))
        size += n
    return shards


def write_shard(path, tensors, numbers):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors:
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors:
            numbers.write(f, name, shape)


def write_part(folder, stem, tensors, most, numbers):
    shards, names = shards_of(tensors, most), {}
    for i, shard in enumerate(shards):
        file = stem + ".safetensors"
        if len(shards) > 1:
            file = f"{stem}-{i + 1:05}-of-{len(shards):05}.safetensors"
        write_shard(folder / file, shard, numbers)
        names |= {name: file for name, _ in shard}
    if len(shards) > 1:
        total = sum(2 * math.prod(shape) for _, shape in tensors)
        (folder / (stem + ".safetensors.index.json")).write_text(json.dumps(
            {"metadata": {"total_size": total}, "weight_map": names}, indent=2) + "\n")
    return len(shards)


def main():
    o = arguments()
    if o.out.exists():
        sys.exit(f"random_model: {o.out} exists")
    shutil.copytree(o.config, o.out, copy_function=shutil.copyfile,
                    ignore=shutil.ignore_patterns("*.safetensors*", "tensors.txt", "golden.json"))
    for path in (o.out, *o.out.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    if o.tokenizer and not (o.out / "tokenizer").exists():
        shutil.copytree(o.tokenizer, o.out / "tokenizer", copy_function=shutil.copyfile)
    numbers = Numbers()
    for folder in sorted(p.parent for p in o.config.glob("*/config.json")):
        stem = "model" if folder.name.startswith("text_encoder") else "diffusion_pytorch_model"
        tensors = tensors_of(o.xdit, o.config, folder.name)
        n = write_part(o.out / folder.name, stem, tensors, o.shard_gb * 1e9, numbers)
        total = sum(2 * math.prod(shape) for _, shape in tensors)
        print(f"{folder.name}: {len(tensors)} tensors, {total / 1e9:.3f} GB, {n} files")


if __name__ == "__main__":
    main()
