"""shard.py FIRST SECOND INDEX - the T5 encoder of PixArt-alpha as it is published, in two shards of
which the first has 9,989,150,328 bytes, without its numbers: names, shapes and places are those of
the real files, the rest is a hole that reads as zeros. Prints how many tensors the first has."""
import json
import os
import struct
import sys

WIDE, INNER, BLOCKS, VOCAB, HEADS, BUCKETS = 4096, 10240, 24, 32128, 64, 32
CUT = 12                # the block in which the first shard ends, behind k, q and v


def attention(i):
    at = "encoder.block.%d.layer.0.SelfAttention." % i
    return {at + "%s.weight" % x: [WIDE, WIDE] for x in ("k", "q", "v")}


def rest(i):
    at = "encoder.block.%d.layer." % i
    tensors = {at + "0.SelfAttention.o.weight": [WIDE, WIDE]}
    tensors[at + "0.layer_norm.weight"] = tensors[at + "1.layer_norm.weight"] = [WIDE]
    for x in ("wi_0", "wi_1"):
        tensors[at + "1.DenseReluDense.%s.weight" % x] = [INNER, WIDE]
    tensors[at + "1.DenseReluDense.wo.weight"] = [WIDE, INNER]
    if i == 0:
        tensors[at + "0.SelfAttention.relative_attention_bias.weight"] = [BUCKETS, HEADS]
    return tensors


def write(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(tensors):
        size = 4
        for n in tensors[name]:
            size *= n
        header[name] = {"dtype": "F32", "shape": tensors[name], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        os.ftruncate(f.fileno(), 8 + len(text) + at)
    return at


first, second = {"shared.weight": [VOCAB, WIDE]}, {"encoder.final_layer_norm.weight": [WIDE]}
for i in range(BLOCKS):
    (first if i <= CUT else second).update(attention(i))
    (first if i < CUT else second).update(rest(i))
total = write(sys.argv[1], first) + write(sys.argv[2], second)
where = {name: os.path.basename(sys.argv[1]) for name in first}
where.update({name: os.path.basename(sys.argv[2]) for name in second})
with open(sys.argv[3], "w") as f:
    json.dump({"metadata": {"total_size": total}, "weight_map": where}, f)
print(len(first))
