"""500 texts and the ids that transformers' tokenizers of decoder language models give them.

tok-lm/ has texts.txt (a text a line; control characters and backslashes as \\xHH), a folder with a
small vocabulary for each kind of lm_vocab.py, KIND.txt (number of ids and their FNV-1a hash, a text
a line), and frames.txt (number and hash of padded ids, how many are padding in front, how many are
text). tools/compare_tokenizers.py compares many more texts.
"""
import random
import shutil

import transformers

from .. import lm_texts, lm_vocab
from .tok import escaped, fnv

MERGES = 800
# kind, text around a prompt, most ids, add_special_tokens, side: as in tests/unit/test_tok_lm.c
FRAMES = [
    ("qwen", "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n", 48, True, "right"),
    ("qwen_two", "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
     20, True, "left"),
    ("mistral", "<s>[SYSTEM_PROMPT]You reason.[/SYSTEM_PROMPT][INST]{}[/INST]", 32, False, "left"),
    ("llama", "<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>", 24, True, "right"),
    ("gemma", "{}", 12, True, "left"),
    ("odd_bytes", "a {} b", 30, True, "left"),
]


def framed(out, texts):
    lines = []
    for kind, frame, most, special, side in FRAMES:
        t = getattr(transformers, lm_vocab.CLASSES[kind]).from_pretrained(out / kind)
        for text in texts[::10]:
            row = t(frame.replace("{}", text, 1), padding="max_length", truncation=True,
                    max_length=most, add_special_tokens=special, padding_side=side)
            mask = row.attention_mask
            first = mask.index(1) if 1 in mask else most if side == "left" else 0
            lines.append(f"{len(row.input_ids)} {fnv(row.input_ids):016x} {first} {sum(mask)}")
    (out / "frames.txt").write_text("\n".join(lines) + "\n")


def make(names, options):
    transformers.logging.set_verbosity_error()
    out = options.out / "tok-lm"
    texts = lm_texts.random_texts(random.Random(7), 500)
    for kind, write in lm_vocab.KINDS.items():
        shutil.rmtree(out / kind, ignore_errors=True)
        write(out / kind, lm_texts.corpus(), MERGES)
        reference = getattr(transformers, lm_vocab.CLASSES[kind]).from_pretrained(out / kind)
        lines = [f"{len(i)} {fnv(i):016x}" for i in reference(texts).input_ids]
        (out / f"{kind}.txt").write_text("\n".join(lines) + "\n")
    framed(out, texts)
    (out / "texts.txt").write_bytes("".join(escaped(t) + "\n" for t in texts).encode())
