#!/usr/bin/env python3
"""gguf_blocks.py OUT - blocks of every type of GGUF and the numbers that the `gguf` package makes
of them: tests/unit/gguf_blocks.h.

A block's bytes are those of a generator that the test has, too, but for the f16 scales, which are
kept finite and below 2. The header has two blocks with all their numbers, and a hash of the bits of
BLOCKS others. gguf_sample.h, beside it, has a small file as the package writes it.
"""

import pathlib
import sys
import tempfile

import gguf
import numpy

# type -> offsets of its f16 numbers in a block
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82],
          "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0],
          "IQ4_XS": [0]}
BLOCKS, SHOWN = 500, 2


def blocks_of(name, count):
    """Bytes [count, bytes of a block] of a linear congruential generator."""
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
    x, out = 1, bytearray()
    for _ in range(count * size):
        x = (x * 1664525 + 1013904223) & 0xffffffff
        out.append(x >> 24)
    blocks = numpy.frombuffer(bytes(out), numpy.uint8).reshape(count, size).copy()
    for at in HALVES[name]:
        blocks[:, at + 1] &= 0xbf
    return blocks


def numbers_of(name, blocks):
    return gguf.dequantize(blocks, gguf.GGMLQuantizationType[name]).reshape(-1)


def fnv(data):
    h = 0xcbf29ce484222325
    for b in data:
        h = (h ^ b) * 0x100000001b3 & 0xffffffffffffffff
    return h


def rows_of(words, width):
    return ["    " + " ".join(words[i:i + width]) for i in range(0, len(words), width)]


def sample():
    """A file with keys of several types, blocks, a plain tensor and a shape in a key."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "sample.gguf"
        out = gguf.GGUFWriter(path, "flux")
        out.add_array("comfy.gguf.orig_shape.b", [4, 1, 128])
        out.add_array("some.words", ["one", "", "three"])
        out.add_uint32("some.count", 4000000000)
        out.add_int8("some.sign", -7)
        out.add_float32("some.ratio", 0.25)
        out.add_bool("some.truth", True)
        values = numpy.arange(-32, 32, dtype=numpy.float32).reshape(2, 32)
        out.add_tensor("a", gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0),
                       raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        out.add_tensor("b", blocks_of("Q4_K", 2), raw_dtype=gguf.GGMLQuantizationType.Q4_K)
        out.add_tensor("c", numpy.array([1, 2.5, -3], numpy.float32))
        out.add_tensor("d", numpy.ones((3, 2, 1), numpy.float16))
        out.write_header_to_file()
        out.write_kv_data_to_file()
        out.write_tensors_to_file()
        out.close()
        return path.read_bytes()


def main():
    lines, table = ["/* gguf_blocks.h - made by tools/gguf_blocks.py; do not edit */"], []
    for name, halves in HALVES.items():
        low, blocks = name.lower(), blocks_of(name, BLOCKS)
        shown = blocks[:SHOWN].reshape(-1)
        values = numbers_of(name, blocks[:SHOWN])
        bits = numbers_of(name, blocks).astype("<f4").tobytes()
        lines += [f"static const uint8_t {low}_bytes[] = {{",
                  *rows_of([f"{b}," for b in shown], 18), "};",
                  f"static const uint32_t {low}_bits[] = {{",
                  *rows_of([f"0x{b:08x}," for b in values.view(numpy.uint32)], 8), "};"]
        second = halves[1] if len(halves) > 1 else -1
        table.append(f"    {{ XD_{name}, {low}_bytes, {low}_bits, sizeof {low}_bytes, "
                     f"{values.size}, {{ {halves[0]}, {second} }},\n"
                     f"      UINT64_C(0x{fnv(bits):016x}) }},")
    lines += ["static const struct {", "    xd_dtype        type;",
              "    const uint8_t  *bytes;", "    const uint32_t *bits;",
              "    size_t          size;", "    int64_t         n;",
              "    int             half[2];        /* offsets of f16 numbers; -1: none       */",
              f"    uint64_t        hash;           /* of BLOCKS blocks                       */",
              "} cases[] = {", *table, "};", f"enum {{ BLOCKS = {BLOCKS} }};"]
    text = "\n".join(lines)
    header = pathlib.Path(sys.argv[1])
    header.write_text(text + "\n", encoding="utf-8")
    lines = ["/* gguf_sample.h - made by tools/gguf_blocks.py; do not edit */",
             "static const unsigned char gguf_sample[] = {",
             *rows_of([f"{b}," for b in sample()], 18), "};"]
    (header.parent / "gguf_sample.h").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
