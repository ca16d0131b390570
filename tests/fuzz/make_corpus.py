#!/usr/bin/env python3
"""Writes the corpus of the fuzz targets, some KB of good and broken files, beside this script.

usage: make_corpus.py [DIR]

The files are the beginnings from which libFuzzer mutates, and what `make check` replays. A file
that made a target fail is added by hand under a name of its own; this script leaves it alone.
"""
import json
import pathlib
import struct
import sys

import corpus_serve

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
ROOT = ROOT if ROOT.is_dir() else ROOT.parent / "corpus"


def put(target, name, data):
    path = ROOT / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


# ---- safetensors -------------------------------------------------------------------------------

def st(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header,
                                                               separators=(",", ":")).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors():
    ok = {"a": tensor("F32", [2, 2], 0, 16), "b": tensor("BF16", [3], 16, 22)}
    files = {
        "good": st(ok, bytes(22)),
        "metadata": st({"__metadata__": {"format": "pt"}, **ok}, bytes(22)),
        "empty": st({}),
        "scalar": st({"s": tensor("I64", [], 0, 8)}, bytes(8)),
        "zero_extent": st({"z": tensor("F16", [0, 5], 0, 0)}),
        "six_dims": st({"d": tensor("U8", [1, 1, 1, 1, 1, 2], 0, 2)}, bytes(2)),
        "unknown_dtype": st({"q": tensor("F4", [2], 0, 1)}, bytes(1)),
        "all_dtypes": st({n: tensor(n, [1], o, o + s) for n, o, s in (
            ("F64", 0, 8), ("I64", 8, 8), ("F32", 16, 4), ("I32", 20, 4), ("F16", 24, 2),
            ("I16", 26, 2), ("F8_E4M3", 28, 1), ("F8_E5M2", 29, 1), ("I8", 30, 1), ("U8", 31, 1),
            ("BOOL", 32, 1))}, bytes(33)),
        "gap": st({"g": tensor("U8", [2], 3, 5)}, bytes(9)),
        "padded": st(json.dumps(ok).encode() + b"      ", bytes(22)),
        "overlap": st({"a": tensor("U8", [8], 0, 8), "b": tensor("U8", [8], 4, 12)}, bytes(12)),
        "same_place": st({"a": tensor("U8", [8], 0, 8), "b": tensor("U8", [8], 0, 8)}, bytes(8)),
        "twice": st(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                    b'"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', bytes(2)),
        "truncated_data": st(ok, bytes(21)),
        "truncated_header": st(ok, length=4000),
        "huge_header": st(ok, bytes(22), 1 << 40),
        "overflow": st({"o": tensor("F32", [1 << 32, 1 << 32], 0, 0)}),
        "overflow_zero": st({"o": tensor("F32", [1 << 62, 0, 1 << 62], 0, 0)}),
        "far": st({"f": tensor("U8", [4], (1 << 53) - 8, (1 << 53) - 4)}, bytes(4)),
        "negative": st({"n": tensor("F32", [-1], 0, 4)}, bytes(4)),
        "fraction": st({"n": tensor("F32", [1.5], 0, 6)}, bytes(6)),
        "nan": st(b'{"n":{"dtype":"F32","shape":[NaN],"data_offsets":[0,Infinity]}}'),
        "wrong_size": st({"w": tensor("F32", [3], 0, 8)}, bytes(8)),
        "not_object": st(b"[1]"),
        "deep": st(b"[" * 70 + b"]" * 70),
        "bad_types": st({"a": {"dtype": 1, "shape": "x", "data_offsets": {}}}),
        "seven_bytes": b"\2\0\0\0\0\0\0",
        "lfs": b"version https://git-lfs.github.com/spec/v1\n",
        "pickle": b"\x80\2\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.",
    }
    maps = {
        "index_good": {"x": "a.safetensors", "y": "b.safetensors", "z": "b.safetensors"},
        "index_one": {"y": "b.safetensors"},
        "index_missing": {"x": "a.safetensors", "w": "c.safetensors"},
        "index_absent": {"x": "b.safetensors"},
        "index_traversal": {"x": "../a.safetensors"},
        "index_self": {"x": "input.safetensors.index.json"},
        "index_number": {"x": 1},
    }
    for name, m in maps.items():
        files[name] = json.dumps({"metadata": {"total_size": 44}, "weight_map": m}).encode()
    for name, data in files.items():
        put("safetensors", name, data)


# ---- GGUF --------------------------------------------------------------------------------------

def word(text):
    return struct.pack("<Q", len(text)) + text.encode()


def key(name, kind, value):
    """A key with a number (format of struct) or a text."""
    if isinstance(value, str):
        return word(name) + struct.pack("<I", 8) + word(value)
    number, form = kind
    return word(name) + struct.pack("<I" + form, number, value)


def items(name, kind, form, values):
    """A key with a list of numbers."""
    return (word(name) + struct.pack("<IIQ", 9, kind, len(values)) +
            struct.pack(f"<{len(values)}{form}", *values))


def info(name, kind, shape, at):
    """A tensor; the shape is as in the file, innermost first."""
    return (word(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, at))


def gguf(keys, infos, data=b"", version=3, tensors=None, nkeys=None):
    head = b"GGUF" + struct.pack("<IQQ", version, len(infos) if tensors is None else tensors,
                                 len(keys) if nkeys is None else nkeys)
    head += b"".join(keys) + b"".join(infos)
    return head + bytes(-len(head) % 32) + data


def gguf_files():
    u16, u32, i8, f32, f64, flag = (2, "H"), (4, "I"), (1, "b"), (6, "f"), (12, "d"), (7, "?")
    arch, one = key("general.architecture", 0, "flux"), info("x", 0, [4, 2], 0)
    blocks = {2: 18, 3: 20, 6: 22, 7: 24, 8: 34, 20: 18}, {10: 84, 11: 110, 12: 144, 13: 176,
                                                          14: 210, 23: 136}
    words = word("words") + struct.pack("<IIQ", 9, 8, 3) + word("a") + word("") + word("bcd")
    nested = word("nested") + struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQI", 4, 1, 7)
    files = {
        "good": gguf([arch], [one, info("y", 8, [32, 2], 32)], bytes(range(100))),
        "version_2": gguf([arch], [one], bytes(32), version=2),
        "version_9": gguf([arch], [one], bytes(32), version=9),
        "big_endian": b"GGUF" + struct.pack(">IQQ", 3, 1, 0),
        "empty": gguf([], []),
        "keys": gguf([key("a", u16, 7), key("b", u32, 1 << 31), key("c", i8, -7),
                      key("d", f32, 0.5), key("e", f64, 1e300), key("f", flag, True), words,
                      nested, items("g", 10, "Q", [1, 2])], [one], bytes(32)),
        "looked_up": gguf([key("no such key", u16, 7)], [one], bytes(32)),
        "alignment": gguf([key("general.alignment", u32, 8)], [info("x", 1, [3], 8)], bytes(14)),
        "alignment_odd": gguf([key("general.alignment", u32, 24)], [one], bytes(32)),
        "original_shape": gguf([items("comfy.gguf.orig_shape.x", 5, "i", [8, 1, 4])],
                               [info("x", 8, [32], 0)], bytes(34)),
        "original_shape_wrong": gguf([items("comfy.gguf.orig_shape.x", 5, "i", [8, 5])],
                                     [info("x", 8, [32], 0)], bytes(34)),
        "original_shape_negative": gguf([items("comfy.gguf.orig_shape.x", 5, "i", [-8, -4])],
                                        [info("x", 8, [32], 0)], bytes(34)),
        "five_extents": gguf([], [info("x", 30, [1, 2, 1, 2, 1], 0)], bytes(8)),
        "nine_extents": gguf([], [info("x", 0, [1] * 9, 0)], bytes(8)),
        "huge_extents": gguf([], [info("x", 0, [1 << 62, 1 << 62], 0)], bytes(8)),
        "huge_counts": gguf([], [], tensors=1 << 63, nkeys=1 << 60),
        "huge_list": gguf([word("l") + struct.pack("<IIQ", 9, 8, 1 << 61)], [], bytes(8)),
        "huge_word": gguf([struct.pack("<Q", 1 << 63)], [], bytes(32)),
        "overlap": gguf([], [info("x", 0, [16], 0), info("y", 0, [16], 32)], bytes(96)),
        "beyond": gguf([], [info("x", 0, [16], 1 << 40)], bytes(96)),
        "unaligned": gguf([], [info("x", 0, [4], 4)], bytes(96)),
        "unknown_type": gguf([], [info("x", 16, [256], 0)], bytes(66)),
        "no_type": gguf([], [info("x", 4242, [256], 0)], bytes(66)),
        "half_a_block": gguf([], [info("x", 12, [128, 2], 0)], bytes(144)),
        "twice": gguf([], [info("x", 0, [4], 0), info("x", 0, [4], 32)], bytes(48)),
        "truncated_data": gguf([], [one], bytes(31)),
        "shard": gguf([key("split.count", u16, 2)], [info("b", 0, [4], 0)], bytes(15) + b"\xa5"),
        "shard_told_wrong": gguf([key("split.count", u16, 3)], [info("b", 0, [4], 0)],
                                 bytes(15) + b"\xa5"),
        "shard_alone": gguf([key("split.count", u16, 2)], [info("b", 0, [4], 0)], bytes(16)),
    }
    files["truncated_header"] = files["keys"][:70]
    for width, kinds in zip((32, 256), blocks):
        for kind, size in kinds.items():
            files[f"type_{kind}"] = gguf([], [info("x", kind, [width, 2], 0)],
                                         bytes(i * 37 % 256 for i in range(2 * size)))
    for name, data in files.items():
        put("gguf", name, data)


# ---- JSON ----------------------------------------------------------------------------------------

def documents():
    files = {
        "record": '{"i": 3, "l": 9007199254740992, "f": 1e-06, "d": 0.1, "b": false, "s": "silu", '
                  '"ints": [320, 640], "names": ["DownBlock2D", "x"], "known": {}, "new": [1]}',
        "python": '{"f": Infinity, "d": -Infinity, "i": null, "x": NaN, "l": [128, 128]}',
        "words": '{"f": "Infinity", "d": "NaN", "sample_size": 64}',
        "wrong": '{"i": 1.5}', "wrong_bool": '{"b": 1}', "wrong_list": '{"ints": [1, "2"]}',
        "long_text": '{"s": "' + "x" * 64 + '"}',
        "long_list": json.dumps({"ints": list(range(17))}),
        "unequal": '{"l": [1, 2]}', "wide": '{"i": 3000000000, "f": 1e300}',
        "escapes": r'["\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00", "é😀"]',
        "nul": r'["\u0000"]', "surrogate": r'["\ud800"]',
        "bad_utf8": b'["\xff\xc0\x80\xed\xa0\x80"]',
        "stray_utf8": b'["a\x80b\xe2\x82"]', "control": b'["a\tb"]', "bom": b"\xef\xbb\xbf{}",
        "depth64": "[" * 64 + "]" * 64, "depth65": "[" * 65 + "]" * 65, "open": "[[[[",
        "numbers": "[0, -0, 1e5, 1E-5, 1.25, 1e999, -1e999, 12345678901234567890]",
        "long_number": "[" + "1" * 80 + "]",
        "tail": "{} x", "empty": "", "blank": " \n", "twice": '{"a":1,"a":2}', "string": '"text"',
        "unterminated": '{"a": "b', "half_nan": "[-NaN, 1Infinity]", "words2": "[true,false,null]",
    }
    for name, data in files.items():
        put("json", name, data)


# ---- tokenizers ----------------------------------------------------------------------------------

def varint(v):
    out = b""
    while v > 127:
        out += bytes([v & 127 | 128])
        v >>= 7
    return out + bytes([v])


def message(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def piece(text, score, kind=1):
    body = message(1, text.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score)
    return message(1, body + (varint(3 << 3) + varint(kind) if kind != 1 else b""))


def spiece(pieces, kind=1, tail=b""):
    trainer = varint(3 << 3) + varint(kind)
    normalizer = message(1, b"identity") + varint(3 << 3) + b"\1" + varint(4 << 3) + b"\1"
    return b"".join(pieces) + message(2, trainer) + message(3, normalizer) + tail


def charsmap(key="\ufb01", text=b"fi\0"):
    """A character map with one entry: a double array that leads from the bytes of `key` to its
    text.

    A unit holds a label (8 bits), a flag for "a key ends here" (bit 8) and the offset to its
    children (from bit 10 on); the child of label c stands at place ^ offset ^ c.
    """
    units = [0] * 1024
    place, label = 0, 0
    for i, c in enumerate(key.encode()):
        child = 256 * (i + 1) + c if i < 3 else 0
        units[place] = (place ^ child ^ c) << 10 | label
        place, label = child, c
    leaf = 1000
    units[place] = (place ^ leaf) << 10 | 1 << 8 | label
    units[leaf] = 1 << 31                               # the text begins at byte 0
    return struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + text


SPECIAL = [piece("<pad>", 0, 3), piece("</s>", 0, 3), piece("<unk>", 0, 2)]
WORDS = [("▁", -2.0), ("▁large", -5.5), ("a", -3.0), ("▁a", -2.5), ("l", -4.0), ("ge", -6.0),
         ("r", -4.5), ("c", -4.25), ("at", -5.0), ("▁cat", -7.0), ("é", -9.0), ("猫", -10.0)]


def tokenizer_json(**change):
    vocab = [["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0]] + [[t, s] for t, s in WORDS]
    added = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True}
             for i, t in enumerate(("<pad>", "</s>", "<unk>"))]
    doc = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always",
                          "split": True},
        "post_processor": {"type": "TemplateProcessing",
                           "single": [{"Sequence": {"id": "A", "type_id": 0}},
                                      {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                           "pair": [], "special_tokens": {"</s>": {"id": "</s>", "ids": [1],
                                                                   "tokens": ["</s>"]}}},
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        "model": {"type": "Unigram", "unk_id": 2, "vocab": vocab, "byte_fallback": False},
    }
    doc.update(change)
    return json.dumps(doc, ensure_ascii=False)


def bpe(vocab, merges):
    """vocab.json and merges.txt, parted by a NUL."""
    return json.dumps(vocab, ensure_ascii=False).encode() + b"\0" + merges


def pairs():
    ends = {"<|startoftext|>": 20, "<|endoftext|>": 21}
    vocab = {t: i for i, t in enumerate(("a", "b", "c</w>", "ab", "abc</w>", "!", "!</w>", "!!",
                                         "l"))}
    merges = b"#version: 0.2\na b\nab c</w>\n! !\n"
    tokens = [{"id": 20, "content": "<|startoftext|>", "normalized": True, "special": True},
              {"id": 30, "content": "Up ", "normalized": True, "rstrip": True, "single_word": True},
              {"id": 5, "content": "!", "lstrip": True}]
    model = {"type": "BPE", "end_of_word_suffix": "</w>", "vocab": vocab | ends,
             "merges": ["a b", ["ab", "c</w>"]]}
    return {
        "bpe": bpe(vocab | ends, merges),
        "bpe_no_ends": bpe(vocab, merges),
        "bpe_no_merges": bpe(vocab | ends, b""),
        "bpe_three": bpe(vocab | ends, b"a b c\n"),
        "bpe_absent": bpe(vocab | ends, b"a x\n"),
        "bpe_cut": bpe(vocab | ends, merges)[:60] + b"\0" + merges,
        "bpe_twice": bpe(vocab | ends, b"a b\r\n! !\r\na b"),
        "bpe_same_id": bpe({"a": 0, "b": 0}, merges),
        "bpe_far": bpe({"a": 1 << 24, "b": -1}, merges),
        "json_pairs": tokenizer_json(model=model, added_tokens=tokens),
        "json_pairs_bad": tokenizer_json(model=model | {"merges": ["a b", ["a"], 1]}),
        "json_pairs_none": tokenizer_json(model=model | {"merges": None}),
    }


def pieces():
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = ["large", "cat", "##ge", "a", "##t", "\u732b", "e", "##\u0301", "", "1"]
    lines = "\n".join(special + words).encode()
    vocab = {t: i for i, t in enumerate(special + words)}
    tokens = [{"id": i, "content": t, "special": True} for i, t in enumerate(special)]
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
             "max_input_chars_per_word": 100, "vocab": vocab}
    plain = {"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": False,
             "strip_accents": False, "lowercase": False}
    doc = dict(added_tokens=tokens, normalizer={"type": "BertNormalizer"},
               pre_tokenizer={"type": "BertPreTokenizer"}, model=model)
    return {
        "lines": lines,
        "lines_windows": lines.replace(b"\n", b"\r\n") + b"\r\n",
        "lines_twice": lines + b"\ncat",
        "lines_no_unk": lines.replace(b"[UNK]", b"[unk]"),
        "lines_bad_utf8": lines + b"\n\xff\xfe\n##\x80\n\xe2\x82",
        "lines_one": b"[UNK]",
        "json_pieces": tokenizer_json(**doc),
        "json_pieces_plain": tokenizer_json(**doc | {"normalizer": plain}),
        "json_pieces_bad": tokenizer_json(**doc | {"normalizer": None}),
        "json_pieces_short": tokenizer_json(**doc | {"model": model | {
            "continuing_subword_prefix": "#" * 65, "max_input_chars_per_word": -1}}),
    }


def split(pattern, how="Isolated"):
    return {"type": "Split", "pattern": pattern, "behavior": how, "invert": False}


def language_models():
    letters = [chr(b) if 0x21 <= b < 0x7f or 0xa1 <= b < 0xad or b > 0xad else ""
               for b in range(256)]
    rest = iter(range(256, 512))
    vocab = {c or chr(next(rest)): i for i, c in enumerate(letters)}
    vocab |= {"la": 256, "lar": 257, "\u0120c": 258, "ge": 259}
    model = {"type": "BPE", "unk_token": None, "byte_fallback": False, "ignore_merges": True,
             "vocab": vocab, "merges": ["l a", "la r", "\u0120 c", ["g", "e"]]}
    level = {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}
    cut = {"type": "Sequence", "pretokenizers": [
        split({"Regex": r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|\s+(?!\S)|\s+"}), level]}
    tokens = [{"id": 260, "content": "</s>", "special": True, "lstrip": True},
              {"id": 261, "content": "It", "normalized": True, "single_word": True}]
    around = {"type": "Sequence", "processors": [level, {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "</s>", "type_id": 0}}, {"Sequence": {"id": "A"}},
                   {"SpecialToken": {"id": "</s>", "type_id": 0}}],
        "special_tokens": {"</s>": {"id": "</s>", "ids": [260, 1], "tokens": ["</s>"]}}}]}
    doc = dict(normalizer={"type": "NFC"}, pre_tokenizer=cut, post_processor=around,
               added_tokens=tokens, model=model)
    pieces = ["<unk>", "\u2581", "a", "l", "c", "t", "la", "at"]
    pieces += [f"<0x{b:02X}>" for b in range(256)]
    small = {"type": "BPE", "unk_token": "<unk>", "byte_fallback": True, "fuse_unk": True,
             "vocab": {p: i for i, p in enumerate(pieces)}, "merges": [["l", "a"], ["a", "t"]]}
    norms = {"type": "Sequence", "normalizers": [
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        {"type": "Prepend", "prepend": "\u2581"}, {"type": "NFD"}]}
    plain = dict(normalizer=norms, pre_tokenizer=split({"String": " "}, "MergedWithPrevious"),
                 post_processor=None, added_tokens=[], model=small)
    odd = small | {"vocab": {p: i for i, p in enumerate(pieces[:20])}, "fuse_unk": False}
    return {
        "lm_bytes": tokenizer_json(**doc),
        "lm_letters": tokenizer_json(**plain),
        "lm_unknown": tokenizer_json(**plain | {"model": odd, "pre_tokenizer": split(
            {"Regex": r"\P{L}|[\d-]+|$"}, "Contiguous")}),
        "lm_pattern": tokenizer_json(**plain | {"pre_tokenizer": split({"Regex": r"[^\S]\p{Han"})}),
        "lm_cut": tokenizer_json(**plain)[:400],
        "lm_escape": tokenizer_json(**doc).replace("lar", "\\u00e9\\ud83d\\ude00"),
    }


def tokenizers():
    words = [piece(t, s) for t, s in WORDS]
    files = {
        "spiece": spiece(SPECIAL + words),
        "spiece_user": spiece(SPECIAL + words + [piece("<mask>", 0, 4), piece("ab", 0, 5)]),
        "spiece_map": spiece(SPECIAL + words, tail=message(3, message(2, charsmap()))),
        "spiece_short_map": spiece(SPECIAL + words,
                                   tail=message(3, message(2, b"\xff\xff\xff\x7f"))),
        "spiece_bpe": spiece(SPECIAL + words, kind=2),
        "spiece_no_unk": spiece([piece("a", -1), piece("b", -2), piece("c", -3)]),
        "spiece_no_end": spiece([piece("<unk>", 0, 2)] + words),
        "spiece_empty_piece": spiece(SPECIAL + [piece("", -1)]),
        "spiece_nan": spiece(SPECIAL + [piece("a", float("nan")), piece("b", float("inf"))]),
        "spiece_twice": spiece(SPECIAL + words + words[:2]),
        "spiece_cut": spiece(SPECIAL + words)[:40],
        "spiece_bad_utf8": spiece(SPECIAL + [message(1, message(1, b"\xff\xfe"))]),
        "nothing": b"",
        "json": tokenizer_json(),
        "json_bpe": tokenizer_json(model={"type": "BPE", "vocab": {"a": 0}, "merges": []}),
        "json_no_model": tokenizer_json(model=None),
        "json_unk_far": tokenizer_json(model={"type": "Unigram", "unk_id": 99,
                                              "vocab": [["a", -1], ["b", -2], ["c", -3]]}),
        "json_odd_vocab": tokenizer_json(model={"type": "Unigram", "unk_id": 0,
                                                "vocab": [["<unk>", 0], ["a"], "b"]}),
        "json_map": tokenizer_json(normalizer={"type": "Precompiled",
                                               "precompiled_charsmap": "BAAAAAABAABmaQA="}),
        "json_bad_map": tokenizer_json(normalizer={"type": "Sequence", "normalizers": [
            {"type": "Precompiled", "precompiled_charsmap": "!!!"}]}),
        "json_added": tokenizer_json(added_tokens=[
            {"id": 1000000, "content": "<far>", "normalized": True, "lstrip": True, "rstrip": True},
            {"id": -1, "content": "", "single_word": True}]),
    }
    for name, data in (files | pairs() | pieces() | language_models()).items():
        put("tok", name, data)


# ---- captions ----------------------------------------------------------------------------------

def captions():
    files = {
        "nothing": "", "plain": " A Large  RED Circle\n", "odd": b"\xff\xc2a\xe2\x82 b\x80",
        "letters": "\u0130I\u03a3 \u03a3\u03a3. \ufb01\u200b\x7f\x85x",
        "charset": "caf\u00c3\u00a9 \u00e2\u20ac\u0153quoted\u00e2\u20ac\x9d "
                   "\u00f0\u0178\u02dc\u20ac",
        "charset_twice": "\u00c3\u0192\u00c2\u00a9",
        "quotes": "\u2018a\u2019 \u201cb\u201d ``c'' \x1b[31mred\x1b[0m \uff21\uff22",
        "surrogates": b"\xed\xa0\xbd\xed\xb8\x80 \xed\xa0\xbd",
        "html": "<p class='a' b=\"c\" d>x &amp;amp; &lt;b&gt; &#x41;&#65;&notit; &#55296; "
                "&#x110000;</p>",
        "html_open": "<a <b <!-- c --> <!doctype d <![if e]> <?f <script>g</scripx</style>",
        "html_parts": "<![CDATA[a]]> <!-- b --!> <template>c</template><ruby>d<rt>e</rt></ruby>",
        "web": "see https://a.b/c?d=e www.f.org @user 10.0.0.1 <person> \u4e00\u31f0 -- "
               "\u2014 &quot;",
        "names": "image_0123.jpg IMG-20200101-WA0001 123456x7890 #1234 1024 x 768 page 12 "
                 "a.b_c-d.e",
        "shop": "free shipping worldwide, click for download, png jpg photo 123-456 ABC12-D",
        "brackets": "((a)) [b] {c} <d> | e: ; , . ! ? \\ / 'f' \"g\"",
    }
    for name, data in files.items():
        put("caption", name, data)


safetensors()
gguf_files()
documents()
tokenizers()
captions()
for target, files in corpus_serve.corpus().items():
    for name, data in files.items():
        put(target, name, data)
