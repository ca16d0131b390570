"""500 prompts and the ids that transformers' tokenizers give them.

tok/ has prompts.txt (a prompt a line; control characters and backslashes as \\xHH), demo.txt (the
ids of the demo tokenizer, a prompt a line), real.txt (number of ids and their FNV-1a hash with the
vocabulary of T5 itself), small/tokenizer.json and small.txt (the same for it). Of CLIP's tokenizer
clip0.txt, clip1.txt (the same for each published one), clip/ (small vocabularies) and clip.txt; of
BERT's real_bert.txt, bert/ (small vocabularies, as lines and as tokenizer.json with rules of its
own), bert_lines.txt and bert_json.txt; of mT5's mt5/ (a small spiece.model with pieces for bytes,
no sentinels) and mt5.txt; of UMT5's umt5/ (with a piece that opens a text before the unknown one,
300 sentinels) and umt5.txt.

Files of published tokenizers are written where --hf has them (tools/fetch_configs.py).
"""
import base64
import collections
import io
import json
import pathlib
import random
import shutil
import tempfile

import sentencepiece
import transformers
from transformers import AutoTokenizer, BertTokenizer, CLIPTokenizer, T5Tokenizer
from transformers.convert_slow_tokenizer import SentencePieceExtractor

from ..common import ROOT

WRITTEN = [
    "", " ", "   ", "\t", "\n", "\r\n", "a", " a", "a ", " a  b ", "a\u00a0b", "a\u2003b\u3000c",
    "a large red circle on a blue background", "A LARGE RED CIRCLE",
    "yellow square, green background",
    "A photo of an astronaut riding a horse on Mars, 85mm, f/1.4, bokeh --ar 16:9",
    "masterpiece, best quality, (detailed eyes:1.2), [blurry], {soft|hard} light, <lora:x:0.8>",
    "it's 5 o'clock; don't stop \u2014 \u201cquoted\u201d \u2018text\u2019 \u2026",
    "na\u00efve caf\u00e9 fa\u00e7ade \u0153uvre stra\u00dfe \u0130stanbul",
    "Stra\u00dfe in M\u00fcnchen bei Nacht, \u00d6l auf Leinwand",
    "un ch\u00e2teau fran\u00e7ais au bord de l'eau", "un paisaje con ni\u00f1os y ping\u00fcinos",
    "\u041c\u043e\u0441\u043a\u0432\u0430 \u0437\u0438\u043c\u043e\u0439",
    "\u6771\u4eac\u306e\u591c\u666f\u3001\u30cd\u30aa\u30f3",
    "\u4e00\u53ea\u5927\u718a\u732b\u5728\u5403\u7af9\u5b50", "\uc11c\uc6b8\uc758 \ubd04",
    "\u0627\u0644\u0633\u0644\u0627\u0645 \u0639\u0644\u064a\u0643\u0645",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01",
    "\u039f\u03b4\u03c5\u03c3\u03c3\u03ad\u03b1\u03c2 \u03a3\u03a3\u03a3", "\U0001f600",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 family \U0001f44d\U0001f3fd \U0001f1e9\U0001f1ea",
    "\u2764\ufe0f \u2600\ufe0f sun", "e\u0301 = \u00e9, A\u030a = \u212b, A\u030a\u0301",
    "\ufb01ne \u2460\u2461 \u00bd \u2163 \u33d4 \uff21\uff22\uff23",
    "\u2460\u0301 \u00bd\u0301 \ufb01\u0301", "</s>", "<pad>", "<unk>", "<extra_id_0>",
    "<extra_id_99>", "<extra_id_100>", "<extra_id_-1>", "<extra_id_", "a</s>b", "a </s> b",
    "  </s>  ", "</s></s>", "<pad><unk></s>", "</S> <PAD>", "< /s> <pad >", "x<extra_id_5>y",
    "x  <extra_id_5>  y", "<extra_id_1> <extra_id_2>", "\u0085<extra_id_3>\u0085x", "<<pad>>",
    "<pa<pad>d>", "</s", "\uff1c/s\uff1e", "\uff1cextra_id_1\uff1e", "<\u200bpad>", "a\u0085b",
    "\u0085", "a\u0085", "a\u2028b\u2029c", "a\u200bb", "a\u00adb", "a\ufeffb", "\ufeff", "\u2581",
    "\u2581\u2581", "a\u2581b", "\u2581a", "a \u2581 b", "\u2581\u2581\u2581a\u2581", "\ufffd",
    "a\ufffdb", "\ufffd\ufffd x", "\x00", "a\x00b", "\x01\x02\x03", "\x1b[31mred\x1b[0m",
    "a\x0bb\x0cc\x1cd\x1ee\x1ff", "\x7f", "a\x7fb", "\x80\x9f", ".", "..", "...", "." * 26,
    "." * 47, "!" * 33, "?!" * 20, "-" * 80, "=" * 64, "*" * 31, "_" * 45, "ha" * 30, "a" * 100,
    "the" * 50, "0123456789" * 10, "3.14159 1,000,000 1e-5 0x1F", "#FF0000 rgb(255,0,0)",
    "http://example.org/a?b=c&d=%20", "C:\\path\\file.png", "{\"json\": [1, 2]}",
    "<html><b>bold</b></html>", "a_b-c/d\\e|f", "supercalifragilisticexpialidocious",
    "Donaudampfschifffahrtsgesellschaft", "\u1e9e \u01c5 \u0149 \u1fb3",
    "\u1100\u1161\u11a8 \uac01", "\U0001d49c\U0001d4b7\U0001d4b8 \U0001d7d8\U0001d7d9",
    "\U00020000\U0002a6d6", "\U0010ffff", "\ue000\uf8ff", "\ufdd0\uffff", "\u0378",
    "a\u0301\u0302\u0303\u0304\u0305\u0306",
    "Z\u0351\u036b\u0343a\u0323\u0353l\u0318\u0320g\u031bo\u0335", "\u0600a\u0301",
    "\u0897e\u0301\u1acf",
]
WORDS = ("a the red blue green yellow black white circle square cat dog castle river mountain "
         "portrait pain" "ting "
         "photo of in on under with background large small ancient futuristic "
         "neon light shadow detailed oil watercolor sunset forest robot dragon glass city street "
         "rain snow ultra-realistic 4k 8K cinematic close-up bird's-eye symmetrical minimal "
         "abstract").split()
MARKS = ["</s>", "<pad>", "<unk>", "<extra_id_0>", "<extra_id_42>", "<extra_id_", " ", "  ", "\t",
         "\n", "\u0085", "\u00a0", "\u3000", "\u2581", "...", "!!!", "e\u0301",
         "A\u030a\u0301", "\ufb03", "\u3314", "\x00", "\x1f"]
POOLS = [(0x20, 0x7f), (0x80, 0x250), (0x250, 0x370), (0x370, 0x530), (0x590, 0x700),
         (0x900, 0xe80), (0x1e00, 0x2000), (0x2000, 0x2c00), (0x3000, 0x3400), (0x4e00, 0x5000),
         (0xac00, 0xad00), (0xf900, 0x10000), (0x1d400, 0x1d800), (0x1f300, 0x1f700), (0, 0xa0)]


def character(rng):
    while True:
        lo, hi = rng.choice(POOLS)
        c = rng.randrange(lo, hi)
        if not 0xd800 <= c < 0xe000:
            return chr(c)


def sentence(rng, n):
    out = ""
    for i in range(n):
        out += rng.choice(WORDS) + rng.choice([" ", " ", " ", ", ", ". ", "  ", "-"])
    return out if rng.random() < 0.3 else out.strip()


def mixture(rng, n):
    pick = [lambda: rng.choice(MARKS), lambda: character(rng), lambda: rng.choice(WORDS),
            lambda: rng.choice("abcdefghij ,.e!")]
    return "".join(rng.choice(pick)() for _ in range(n))


def prompts():
    rng = random.Random(20240607)
    out = list(WRITTEN)
    out += ["x" * 10000, ("red circle, " * 900)[:10000]]
    out += ["".join(character(rng) for _ in range(10000))]
    while len(out) < 300:
        out.append(sentence(rng, rng.randint(3, 30)))
    while len(out) < 500:
        out.append(mixture(rng, rng.randint(1, 24)))
    return out


def escaped(text):
    return "".join(f"\\x{ord(c):02x}" if ord(c) < 0x20 or c in "\x7f\\" else c for c in text)


def fnv(ids):
    h = 0xcbf29ce484222325
    for i in ids:
        for byte in int(i).to_bytes(4, "little"):
            h = (h ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return h


def ids_of(tokenizer, texts, limits=(1, 2, 20)):
    whole = tokenizer(texts).input_ids
    for limit in limits:                # the test relies on how truncation works
        for ids, cut in zip(whole, tokenizer(texts, truncation=True, max_length=limit).input_ids):
            assert cut == (ids if len(ids) <= limit else ids[:limit - 1] + ids[-1:])
    return whole


def write_small(folder, demo):
    """A tokenizer.json of the demo's pieces with a small character map and added tokens of every
    kind, so that this path is tested where no published tokenizer.json is at hand."""
    work = tempfile.mkdtemp()
    rules = {"\u2460": "1", "\u00bd": "1/2", "\x01": "", "\u0085": " ", "e\u0301": "\u00e9",
             "A\u030a": "\u00c5", "A\u030a\u0301": "\u01fa", "\ufffd": " "}
    rules.update({chr(0xff01 + i): chr(0x21 + i) for i in range(94)})
    hexes = lambda s: " ".join(f"{ord(c):X}" for c in s)
    tsv, text = pathlib.Path(work, "rules.tsv"), pathlib.Path(work, "text.txt")
    tsv.write_text("".join(f"{hexes(a)}\t{hexes(b)}\n" for a, b in rules.items()))
    text.write_text("a b c d e f\n" * 50)
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(pathlib.Path(work, "m")), vocab_size=16,
        hard_vocab_limit=False, normalization_rule_tsv=str(tsv), minloglevel=2)
    proto = SentencePieceExtractor(str(pathlib.Path(work, "m.model"))).proto
    j = json.loads(T5Tokenizer.from_pretrained(demo)._tokenizer.to_str())
    j["normalizer"]["precompiled_charsmap"] = base64.b64encode(
        proto.normalizer_spec.precompiled_charsmap).decode()
    for content, flags in (("<extra_id_0>", "lstrip rstrip special"), ("circle", "single_word"),
                           ("ha1", "normalized"), ("ab", "rstrip")):
        token = {"id": len(j["model"]["vocab"]) + len(j["added_tokens"]), "content": content}
        names = "single_word lstrip rstrip normalized special".split()
        j["added_tokens"].append(token | {n: n in flags.split() for n in names})
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(j) + "\n")
    shutil.rmtree(work)


def write_mt5(folder, texts, extra_ids=0, **ids):
    """A spiece.model with a piece for every byte, which T5Tokenizer does not use for what it does
    not know, beside a config with the number of sentinels: as HunyuanDiT's second and Wan's."""
    lines = [" ".join(t.split()) for t in texts if "\x00" not in t and len(t) < 300]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 3), model_writer=model, vocab_size=900, byte_fallback=True,
        pad_id=0, eos_id=1, character_coverage=0.98, hard_vocab_limit=False,
        normalization_rule_name="identity", minloglevel=2, **ids)
    folder.mkdir(exist_ok=True)
    (folder / "spiece.model").write_bytes(model.getvalue())
    config = {"tokenizer_class": "T5Tokenizer", "extra_ids": extra_ids, "legacy": True,
              "add_prefix_space": True}
    if not extra_ids:
        config["additional_special_tokens"] = []
    config["model_max_length"] = 1e30
    (folder / "tokenizer_config.json").write_text(json.dumps(config) + "\n")


def letters():
    """CLIP's letter for each byte."""
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    rest = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(rest)}


def trained(texts, count):
    """The `count` merges that byte pair encoding learns from words."""
    words = [list(w[:-1]) + [w[-1] + "</w>"] for t in texts for w in t.lower().split()]
    merges = []
    while len(merges) < count:
        pairs = collections.Counter(p for w in words for p in zip(w, w[1:]))
        best = max(sorted(pairs), key=lambda p: pairs[p])
        merges.append(best)
        for w in words:
            for i in range(len(w) - 2, -1, -1):
                if (w[i], w[i + 1]) == best:
                    w[i:i + 2] = [w[i] + w[i + 1]]
    return merges


def write_clip(folder):
    """A vocabulary of CLIP's kind with bytes left out, the padding token a piece that texts
    have, and added tokens of every kind: as vocab.json and merges.txt, and as tokenizer.json."""
    have = [letters()[b] for b in range(256)
            if not 0x41 <= b <= 0x5a and (b < 0xc3 or b in (0xce, 0xe2, 0xe3, 0xef, 0xf0))]
    merges = trained(WORDS + ["ha" * 8, "aaaa", "it's don't"], 60)
    merges += [("a", "a</w>"), ("aa", "a"), ("a", "aa"), ("!", "!"), ("!!", "!!</w>"),
               ("!", "!</w>")]
    pieces = have + [c + "</w>" for c in have] + ["".join(m) for m in merges]
    vocab = {p: i for i, p in enumerate(dict.fromkeys(pieces))}
    vocab |= {t: len(vocab) + i for i, t in enumerate(("<|startoftext|>", "<|endoftext|>"))}
    merges = [m for m in dict.fromkeys(merges) if all(p in vocab for p in m)]
    flags = dict.fromkeys("lstrip normalized rstrip single_word special".split(), False)
    added = {vocab["!</w>"]: {"content": "!</w>"}, vocab["~"]: {"content": "~", "special": True},
             vocab["<|startoftext|>"]: {"content": "<|startoftext|>", "normalized": True,
                                        "special": True},
             vocab["<|endoftext|>"]: {"content": "<|endoftext|>", "special": True}}
    for content, names in (("Circle", "normalized single_word"), ("<LORA>", "lstrip rstrip"),
                           ("red  B", "normalized"), ("\u00c9e\u0301", "normalized rstrip")):
        added[max(added) + 1] = {"content": content} | dict.fromkeys(names.split(), True)
    named = {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "pad_token": "~",
             "unk_token": "<|endoftext|>"}
    config = {"tokenizer_class": "CLIPTokenizer", "model_max_length": 77} | named
    decoder = {str(k): flags | v for k, v in added.items()}

    put(folder / "two/vocab.json", json.dumps(vocab, ensure_ascii=False, separators=(",", ":")))
    put(folder / "two/merges.txt", "\n".join(["#version: 0.2"] + [" ".join(m) for m in merges]))
    put(folder / "two/tokenizer_config.json",
        json.dumps(config | {"added_tokens_decoder": decoder}))
    model = {"type": "BPE", "unk_token": "<|endoftext|>", "end_of_word_suffix": "</w>",
             "vocab": vocab, "merges": [" ".join(m) for m in merges]}
    tokens = [{"id": k} | flags | v for k, v in added.items()]
    put(folder / "one/tokenizer.json", json.dumps({"added_tokens": tokens, "model": model},
                                                  ensure_ascii=False, separators=(",", ":")))
    put(folder / "one/tokenizer_config.json", json.dumps(config))


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def bert_pieces(texts, prefix):
    """Special tokens, the characters that the texts have at all often, words and ends of words."""
    seen = collections.Counter(c for t in texts for c in t + t.lower() if c.isprintable() and
                               c != " ")
    letters = [c for c, n in sorted(seen.items()) if n > 5 and c != prefix]
    words = sorted({w for w in "".join(c if c.isalnum() else " " for c in " ".join(WORDS)).split()})
    ends = [prefix + w[i:] for w in words for i in (2, 3) if len(w) > i + 1]
    pieces = ["[PAD]", "[unused1]", "", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces += letters + [prefix + c for c in letters if c.isalnum()] + words + ends
    pieces += ["na", "nai", prefix + "\u0301", "caf\u00e9", "\u6771\u4eac", "\u0130", prefix]
    return list(dict.fromkeys(pieces))


def write_bert(folder, texts):
    """Small vocabularies of BERT's kind: lines, of which one is blank, with added tokens; and a
    tokenizer.json of no named class, whose rules are all others than BertTokenizer's."""
    flags = dict.fromkeys("lstrip normalized rstrip single_word special".split(), False)
    lines = bert_pieces(texts, "##")
    decoder = {str(lines.index(t)): flags | {"content": t, "special": True}
               for t in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")}
    decoder[str(len(lines))] = flags | {"content": "Red  Circle", "normalized": True}
    decoder[str(len(lines) + 1)] = flags | {"content": "</s>", "lstrip": True, "rstrip": True}
    config = {"tokenizer_class": "BertTokenizer", "model_max_length": 77, "do_lower_case": True}
    put(folder / "lines/vocab.txt", "\n".join(lines))
    put(folder / "lines/tokenizer_config.json",
        json.dumps(config | {"added_tokens_decoder": decoder}))
    vocab = {p: i for i, p in enumerate(bert_pieces(texts, "_"))}
    ends = {t: vocab[t] for t in ("[CLS]", "[SEP]")}
    tokens = [flags | {"id": vocab[t], "content": t, "special": True}
              for t in ("[PAD]", "[UNK]", "[CLS]", "[SEP]")]
    post = {"type": "BertProcessing", "cls": ["[CLS]", ends["[CLS]"]],
            "sep": ["[SEP]", ends["[SEP]"]]}
    put(folder / "json/tokenizer.json", json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens,
        "normalizer": {"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": False,
                       "strip_accents": False, "lowercase": False},
        "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": post, "decoder": None,
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "_",
                  "max_input_chars_per_word": 12, "vocab": vocab}}, ensure_ascii=False))
    named = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    put(folder / "json/tokenizer_config.json", json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 77} | named))


def published(folder):
    """Which of the published tokenizers are below `folder`: of T5, of CLIP, and BERT's or None."""
    sd3, flux = "stabilityai/stable-diffusion-3-medium-diffusers", "black-forest-labs/FLUX.1-dev"
    t5 = [folder / sd3 / "tokenizer_3", folder / flux / "tokenizer_2"]
    clip = [folder / flux / "tokenizer", folder / sd3 / "tokenizer_2"]
    bert = folder / "Tencent-Hunyuan/HunyuanDiT-Diffusers/tokenizer"
    if not all(d.is_dir() for d in t5 + clip + [bert]):
        print(f"not all published tokenizers are in {folder}: their files stay as they are")
        return [], [], None
    return t5, clip, bert


def make(names, options):
    transformers.logging.set_verbosity_error()
    out, texts = options.out / "tok", prompts()
    demo = ROOT / "models/demo-pixart/tokenizer"
    t5, clip, bert = published(options.hf)
    out.mkdir(parents=True, exist_ok=True)

    def write(name, lines):
        (out / name).write_bytes(("\n".join(lines) + "\n").encode())

    write("prompts.txt", [escaped(t) for t in texts])
    ids = ids_of(T5Tokenizer.from_pretrained(demo), texts)
    write("demo.txt", [" ".join(map(str, i)) for i in ids])
    real = [ids_of(T5Tokenizer.from_pretrained(d), texts) for d in t5]
    assert all(r == real[0] for r in real)
    write_small(out / "small", demo)
    small = ids_of(T5Tokenizer.from_pretrained(out / "small"), texts)
    write("small.txt", [f"{len(i)} {fnv(i):016x}" for i in small])
    write_mt5(out / "mt5", texts, unk_id=2, bos_id=-1)
    write_mt5(out / "umt5", texts, 300, bos_id=2, unk_id=3)
    for name in ("mt5", "umt5"):
        ids = ids_of(T5Tokenizer.from_pretrained(out / name), texts)
        write(f"{name}.txt", [f"{len(i)} {fnv(i):016x}" for i in ids])
    if real:
        write("real.txt", [f"{len(i)} {fnv(i):016x}" for i in real[0]])

    for i, folder in enumerate(clip):
        ids = ids_of(CLIPTokenizer.from_pretrained(folder), texts, (2, 3, 77))
        write(f"clip{i}.txt", [f"{len(i)} {fnv(i):016x}" for i in ids])
    write_clip(out / "clip")
    kinds = [CLIPTokenizer.from_pretrained(out / "clip" / k) for k in ("one", "two")]
    kinds = [ids_of(k, texts, (2, 3, 77)) for k in kinds]
    assert kinds[0] == kinds[1]
    write("clip.txt", [f"{len(i)} {fnv(i):016x}" for i in kinds[0]])

    write_bert(out / "bert", texts)
    small = {"bert_lines.txt": (BertTokenizer, out / "bert/lines"),
             "bert_json.txt": (AutoTokenizer, out / "bert/json")}
    if bert:
        small["real_bert.txt"] = BertTokenizer, bert
    for name, (kind, folder) in small.items():
        ids = ids_of(kind.from_pretrained(folder), texts, (2, 3, 77))
        write(name, [f"{len(i)} {fnv(i):016x}" for i in ids])
