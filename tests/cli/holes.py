"""holes.py FROM TO [COMPONENT=TYPE]... - a published model without its numbers: the configs and
tokenizers of FROM, and weights with the names and shapes of FROM/COMPONENT/tensors.txt that are
holes, which read as zeros and take no room on the disk. TYPE: F32, BF16 (default), F16. A tokenizer
that is missing is that of --tokenizer DIR."""
import json
import math
import os
import shutil
import struct
import sys

BYTES = {"F32": 4, "BF16": 2, "F16": 2}


def write(path, listing, kind):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for line in sorted(open(listing)):
        name, *shape = line.split()
        shape = [int(n) for n in shape[0].split("x")] if shape else []
        size = BYTES[kind] * math.prod(shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        os.ftruncate(f.fileno(), 8 + len(text) + at)


def main():
    args = sys.argv[1:]
    tokenizer = None
    if "--tokenizer" in args:
        i = args.index("--tokenizer")
        tokenizer = args[i + 1]
        del args[i:i + 2]
    source, to = args[:2]
    kinds = dict(a.split("=") for a in args[2:])
    shutil.copytree(source, to, ignore=shutil.ignore_patterns("tensors.txt",
                                                              "*.safetensors.index*.json"))
    for part in sorted(os.listdir(source)):
        listing = os.path.join(source, part, "tensors.txt")
        if os.path.exists(listing):
            stem = "model" if part.startswith("text_encoder") else "diffusion_pytorch_model"
            write(os.path.join(to, part, stem + ".safetensors"), listing, kinds.get(part, "BF16"))
    if tokenizer and not os.path.exists(os.path.join(to, "tokenizer")):
        shutil.copytree(tokenizer, os.path.join(to, "tokenizer"))


main()
