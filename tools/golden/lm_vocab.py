"""Vocabularies of decoder language models, in the structure of the published files.

The files of a kind have the regular expression, options, special tokens and post-processor of the
published tokenizer; the merges are learned from whatever texts are given. Kinds: qwen
(tokenizer.json), qwen_two (vocab.json and merges.txt), qwen_old (the same, with added_tokens.json
and special_tokens_map.json), llama, mistral, gemma, gemma_model (tokenizer.model). Two more have
options that no published file has together: odd_bytes, odd_letters.
"""
import io
import json

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
MISTRAL = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*"
           r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
FLAGS = dict.fromkeys("single_word lstrip rstrip normalized special".split(), False)
QWEN_TOKENS = """<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|>
    <|box_start|> <|box_end|> <|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|>
    <|vision_pad|> <|image_pad|> <|video_pad|>""".split()
QWEN_PLAIN = """<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|>
    <|repo_name|> <|file_sep|> <tool_response> </tool_response> <think> </think>""".split()
LLAMA_TOKENS = """<|begin_of_text|> <|end_of_text|> <|reserved_special_token_0|>
    <|start_header_id|> <|end_header_id|> <|eot_id|> <pad>""".split()
MISTRAL_TOKENS = """<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS]
    [TOOL_RESULTS] [/TOOL_RESULTS] [TOOL_CALLS] [IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX]
    [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT]""".split()
GEMMA_TOKENS = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "[multimodal]", "<unused0>",
                "<start_of_turn>", "<end_of_turn>"]
GEMMA_PLAIN = ["\n" * n for n in range(2, 6)] + ["\u2581" * n for n in range(2, 8)] + \
    ["<table>", "<td>", "\t\t", "</h1>"]


def put(folder, name, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text if isinstance(text, str) else
                               json.dumps(text, ensure_ascii=False, separators=(",", ":")) + "\n")


def split(regex):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def level(**change):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
            "use_regex": False} | change


def learn(texts, regex, count):
    """Merges that byte-level byte pair encoding learns, and the pieces, the bytes first."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(regex), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=256 + count, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    model = json.loads(t.to_str())["model"]
    merges = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    return sorted(pre_tokenizers.ByteLevel.alphabet()) + ["".join(m) for m in merges], merges


def document(pieces, merges, tokens, model=None, **parts):
    """A tokenizer.json. `tokens`: {content: flags that are set}."""
    vocab = {p: i for i, p in enumerate(dict.fromkeys(pieces))}
    ids = dict(vocab)
    for t in tokens:
        ids.setdefault(t, len(ids))
    added = [{"id": ids[t], "content": t} | FLAGS | dict.fromkeys(flags.split(), True)
             for t, flags in tokens.items()]
    doc = {"version": "1.0", "truncation": None, "padding": None,
           "added_tokens": sorted(added, key=lambda a: a["id"]), "normalizer": None,
           "pre_tokenizer": None, "post_processor": None, "decoder": None}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
             "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False,
             "ignore_merges": False} | (model or {})
    return doc | parts | {"model": model | {"vocab": vocab, "merges": merges}}


def template(token, ident):
    return {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": token, "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {token: {"id": token, "ids": [ident], "tokens": [token]}}}


def decoder_of(doc):
    return {str(a["id"]): {k: v for k, v in a.items() if k != "id"} for a in doc["added_tokens"]}


def qwen_tokens():
    return dict.fromkeys(QWEN_TOKENS, "special") | dict.fromkeys(QWEN_PLAIN, "")


def qwen_document(texts, count):
    pieces, merges = learn(texts, QWEN, count)
    return document(pieces, [" ".join(m) for m in merges], qwen_tokens(),
                    normalizer={"type": "NFC"}, post_processor=level(),
                    pre_tokenizer={"type": "Sequence", "pretokenizers": [split(QWEN), level()]})


QWEN_CONFIG = {"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": False, "bos_token": None,
               "add_bos_token": False, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
               "unk_token": None, "model_max_length": 131072,
               "additional_special_tokens": QWEN_TOKENS[1:]}


def qwen(folder, texts, count):
    doc = qwen_document(texts, count)
    put(folder, "tokenizer.json", doc)
    put(folder, "tokenizer_config.json", QWEN_CONFIG | {"added_tokens_decoder": decoder_of(doc)})


def qwen_two(folder, texts, count):
    doc = qwen_document(texts, count)
    put(folder, "vocab.json", doc["model"]["vocab"])
    put(folder, "merges.txt", "\n".join(["#version: 0.2"] + doc["model"]["merges"]) + "\n")
    put(folder, "tokenizer_config.json", QWEN_CONFIG | {"added_tokens_decoder": decoder_of(doc)})
    return doc


def qwen_old(folder, texts, count):
    doc = qwen_two(folder, texts, count)
    put(folder, "added_tokens.json", {a["content"]: a["id"] for a in doc["added_tokens"]})
    put(folder, "special_tokens_map.json",
        {"eos_token": FLAGS | {"content": "<|im_end|>"}, "pad_token": "<|endoftext|>",
         "additional_special_tokens": QWEN_TOKENS[1:3]})
    put(folder, "tokenizer_config.json", {"tokenizer_class": "Qwen2Tokenizer"})


def llama(folder, texts, count, own=()):
    """Pairs as strings, words that are pieces without merges, tokens with every flag. own: further
    special tokens."""
    pieces, merges = learn(texts, LLAMA, count)
    pieces += ["\u0120watercolour", "astronaut", "\u0120\u0120\u0120\u0120\u0120\u0120\u0120"]
    tokens = dict.fromkeys([*LLAMA_TOKENS, *own], "special") | {
        "<|left|>": "lstrip special", "<|right|>": "rstrip special", "<|both|>": "lstrip rstrip",
        "circle": "single_word", "Red Fox": "normalized"}
    doc = document(pieces, [" ".join(m) for m in merges], tokens, {"ignore_merges": True},
                   pre_tokenizer={"type": "Sequence", "pretokenizers": [split(LLAMA), level()]})
    begin = doc["added_tokens"][0]["id"]
    doc["post_processor"] = {"type": "Sequence", "processors": [
        level(), template("<|begin_of_text|>", begin)]}
    put(folder, "tokenizer.json", doc)
    put(folder, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin_of_text|>",
        "eos_token": "<|end_of_text|>", "pad_token": "<pad>", "model_max_length": 131072,
        "padding_side": "right", "added_tokens_decoder": decoder_of(doc)})


def mistral(folder, texts, count):
    """Special tokens at the beginning of the vocabulary, merges as pairs."""
    pieces, merges = learn(texts, MISTRAL, count)
    doc = document(MISTRAL_TOKENS + pieces, merges, dict.fromkeys(MISTRAL_TOKENS, "special"),
                   {"ignore_merges": True, "continuing_subword_prefix": None,
                    "end_of_word_suffix": None}, post_processor=template("<s>", 1),
                   pre_tokenizer={"type": "Sequence", "pretokenizers": [split(MISTRAL), level()]})
    put(folder, "tokenizer.json", doc)
    put(folder, "tokenizer_config.json", {
        "tokenizer_class": "TokenizersBackend", "bos_token": "<s>", "eos_token": "</s>",
        "pad_token": "<pad>", "unk_token": "<unk>", "padding_side": "left",
        "added_tokens_decoder": decoder_of(doc)})


def gemma(folder, texts, count):
    """No cuts into words, pieces for bytes, spaces as U+2581."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Replace(" ", "\u2581")
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split("\u2581", "merged_with_next"),
        pre_tokenizers.Split(Regex(r"\p{N}|[\r\n]"), "isolated")])
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=count + 500, show_progress=False,
                                                     limit_alphabet=500))
    model = json.loads(t.to_str())["model"]
    merges = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    words = {"".join(m) for m in merges}
    letters = [p for p in model["vocab"] if p not in words and p not in ("\u2581", "\t")]
    marks = ["\u2581"]
    lines = [p for p in GEMMA_PLAIN if set(p) <= {"\u2581", "\n", "\t"}]
    pieces = GEMMA_TOKENS + GEMMA_PLAIN + [f"<0x{b:02X}>" for b in range(256) if b != 9] + ["\t"]
    pieces += ["".join(m) for m in merges] + marks + letters
    pieces += ["\n"] if "\n" not in pieces else []
    have = set(pieces)
    runs = [(p[:k], p[k:]) for p in lines for k in range(len(p) - 1, 0, -1)
            if p[:k] in have and p[k:] in have]
    merges = [list(m) for m in dict.fromkeys(runs + [tuple(m) for m in merges])]
    tokens = dict.fromkeys(GEMMA_TOKENS, "special") | dict.fromkeys(GEMMA_PLAIN, "")
    put(folder, "tokenizer.json", document(
        pieces, merges, tokens, {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                                 "continuing_subword_prefix": None, "end_of_word_suffix": None},
        normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        pre_tokenizer={"type": "Split", "pattern": {"String": " "},
                       "behavior": "MergedWithPrevious", "invert": False},
        post_processor=template("<bos>", 2)))
    put(folder, "tokenizer_config.json", {
        "tokenizer_class": "GemmaTokenizer", "bos_token": "<bos>", "eos_token": "<eos>",
        "pad_token": "<pad>", "unk_token": "<unk>", "add_bos_token": True, "add_eos_token": False,
        "model_max_length": 1000000000000000019884624838656})


def gemma_model(folder, texts, count):
    import sentencepiece
    lines = [line for t in texts for line in t.replace("\0", "").split("\n") if line.strip()]
    if count < 2000:                    # every letter needs a piece
        lines = [line for line in lines if max(line) < "\u0900"]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=300 + count,
        model_type="bpe", byte_fallback=True, split_digits=True, hard_vocab_limit=False,
        allow_whitespace_only_pieces=True, normalization_rule_name="identity",
        add_dummy_prefix=False, remove_extra_whitespaces=False, character_coverage=0.98,
        pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece="<pad>", eos_piece="<eos>",
        bos_piece="<bos>", unk_piece="<unk>", minloglevel=2, max_sentence_length=20000,
        user_defined_symbols=GEMMA_TOKENS[4:] + GEMMA_PLAIN)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    put(folder, "tokenizer_config.json", {
        "tokenizer_class": "GemmaTokenizer", "bos_token": "<bos>", "eos_token": "<eos>",
        "pad_token": "<pad>", "unk_token": "<unk>", "add_bos_token": True, "add_eos_token": False})


def odd_bytes(folder, texts, count):
    """Every way to cut, a space before every word, GPT-2's pattern, tokens of normalized text,
    special tokens on both sides."""
    pieces, merges = learn(texts, LLAMA, count)
    parts = [("-", "MergedWithNext", False), (",", "MergedWithPrevious", False),
             ("\n", "Removed", False)]
    steps = [split("") | {"pattern": {"String": p}, "behavior": b, "invert": i}
             for p, b, i in parts]
    steps += [split(r"\d+|\P{P}") | {"behavior": "Contiguous"},
              split(r"[^\s\p{S}]+") | {"behavior": "Isolated", "invert": True},
              level(add_prefix_space=True, use_regex=True)]
    norms = [{"type": "NFD"}, {"type": "Replace", "pattern": {"String": "aa"}, "content": "b "},
             {"type": "Prepend", "prepend": "re"}]
    tokens = {"<s>": "special", "</s>": "special", "re": "normalized", "<e\u0301>": "normalized",
              "<aaa>": "normalized special", "<pad>": "special"}
    doc = document(pieces, merges, tokens, padding={"direction": "Left", "pad_id": 0,
                   "strategy": "BatchLongest", "pad_to_multiple_of": None, "pad_type_id": 0,
                   "pad_token": "<pad>"}, normalizer={"type": "Sequence", "normalizers": norms},
                   pre_tokenizer={"type": "Sequence", "pretokenizers": steps})
    ids = {a["content"]: a["id"] for a in doc["added_tokens"]}
    doc["post_processor"] = template("<s>", ids["<s>"])
    doc["post_processor"]["single"].append({"SpecialToken": {"id": "</s>", "type_id": 0}})
    doc["post_processor"]["special_tokens"]["</s>"] = {
        "id": "</s>", "ids": [ids["</s>"]], "tokens": ["</s>"]}
    put(folder, "tokenizer.json", doc)
    put(folder, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
        "pad_token": "<pad>"})


def odd_letters(folder, texts, count):
    """Letters without pieces for bytes: each of them is unknown."""
    gemma(folder, texts, count)
    doc = json.loads((folder / "tokenizer.json").read_text())
    doc["model"] |= {"fuse_unk": False, "byte_fallback": True, "ignore_merges": True}
    vocab = doc["model"]["vocab"]       # bytes of letters of three bytes are incomplete
    vocab["<0xe2>"], vocab["<0xf0>"] = vocab.pop("<0xE2>"), vocab.pop("<0xF0>")
    doc["pre_tokenizer"] = split(r"(?i:THE|a)|\x{2581}+|(?<=[a-z])\p{N}") | {
        "behavior": "MergedWithNext"}
    put(folder, "tokenizer.json", doc)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    put(folder, "tokenizer_config.json", config | {"tokenizer_class": "PreTrainedTokenizerFast"})


KINDS = {"qwen": qwen, "qwen_two": qwen_two, "qwen_old": qwen_old, "llama": llama,
         "mistral": mistral, "gemma": gemma, "gemma_model": gemma_model,
         "odd_bytes": odd_bytes, "odd_letters": odd_letters}
CLASSES = {"qwen": "Qwen2Tokenizer", "qwen_two": "Qwen2Tokenizer", "qwen_old": "Qwen2Tokenizer",
           "llama": "PreTrainedTokenizerFast", "mistral": "PreTrainedTokenizerFast",
           "gemma": "GemmaTokenizer", "gemma_model": "GemmaTokenizer",
           "odd_bytes": "PreTrainedTokenizerFast", "odd_letters": "PreTrainedTokenizerFast"}
