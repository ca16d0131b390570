#!/usr/bin/env python3
"""gguf_file.py IN.safetensors OUT.gguf PLAIN.safetensors TYPES [--arch NAME] [--rename FROM=TO ...]

A GGUF file of a safetensors file, written by the package gguf, and a safetensors file with the
numbers that the package decodes from it, in f32.

TYPES: one or several of Q8_0,Q4_K,..., which matrices take in turn. Types that the package does not
quantize get random blocks of the matrix' magnitude: a test needs no good quantizer. A matrix whose
rows are no whole blocks is stored in rows of one block, with its shape beside it as ComfyUI-GGUF
does it; one whose elements are no whole blocks stays f32, as do vectors. --rename replaces the text
FROM in names.
"""

import argparse

import gguf
import numpy
from safetensors.numpy import save_file
from safetensors.torch import load_file

from gguf_blocks import HALVES


def random_blocks(name, count, size, rms):
    """Blocks whose numbers have about this root mean square."""
    kind = gguf.GGMLQuantizationType[name]
    blocks = numpy.random.default_rng(count + size).integers(0, 256, (count, size), numpy.uint8)
    for d in (1.0, None):
        if d is None:
            ones = gguf.dequantize(blocks, kind)
            d = rms / numpy.sqrt(numpy.mean(ones * ones))
        for at in HALVES[name]:
            blocks[:, at:at + 2] = numpy.array([d], numpy.float16).view(numpy.uint8)
    return blocks


def encode(x, name):
    """Blocks of a matrix and the numbers they stand for."""
    kind = gguf.GGMLQuantizationType[name]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    rows = x.reshape(-1, x.shape[-1] if x.shape[-1] % block == 0 else block)
    try:
        data = gguf.quantize(rows, kind)
    except NotImplementedError:
        rms = float(numpy.sqrt(numpy.mean(x * x)))
        data = random_blocks(name, x.size // block, size, rms)
        data = data.reshape(rows.shape[0], -1)
    return data, gguf.dequantize(data, kind).reshape(x.shape).astype(numpy.float32)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("files", nargs=3)
    args.add_argument("types")
    args.add_argument("--arch", default="pig")
    args.add_argument("--rename", action="append", default=[])
    args = args.parse_args()
    types, plain, turn = args.types.split(","), {}, 0
    out = gguf.GGUFWriter(args.files[1], args.arch)
    out.add_array("tokenizer.ggml.tokens", ["a", "bc", ""])     # readers pass over it
    tensors = {n: t.float().numpy() for n, t in sorted(load_file(args.files[0]).items())}
    for name, x in tensors.items():
        kind = gguf.GGMLQuantizationType[types[turn % len(types)]]
        block = gguf.GGML_QUANT_SIZES[kind][0]
        stored = name
        for pair in args.rename:
            stored = stored.replace(*pair.split("="))
        plain[name] = x
        if x.ndim < 2 or x.size % block:
            out.add_tensor(stored, x)
            continue
        turn += 1
        data, plain[name] = encode(x, kind.name)
        out.add_tensor(stored, data, raw_dtype=kind)
        if x.shape[-1] % block or x.ndim > 4:
            out.add_array(f"comfy.gguf.orig_shape.{stored}", [int(d) for d in x.shape])
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    save_file(plain, args.files[2])


if __name__ == "__main__":
    main()
