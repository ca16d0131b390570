#!/usr/bin/env python3
"""Compare the ids of decoder language models' tokenizers with those of transformers.

    pip install -r tools/golden/requirements.txt
    ninja -C build tests/tools/tok_ids
    tools/compare_tokenizers.py --ids build/tests/tools/tok_ids [--count 170000] [KIND ...]

For every kind of tools/golden/lm_vocab.py a vocabulary of --pieces merges is learned from words of
many scripts, written to --work, and read by both. The texts are random: sentences, mixtures of all
scripts, special tokens, controls, white space of every kind, combining marks, long runs. The first
texts that differ are printed, and the exit code is 1.
"""
import argparse
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from golden import lm_texts, lm_vocab  # noqa: E402


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("kinds", nargs="*", metavar="KIND", help="default: all")
    p.add_argument("--ids", required=True, help="the program tok_ids of a build")
    p.add_argument("--count", type=int, default=170000)
    p.add_argument("--pieces", type=int, default=6000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--work", type=pathlib.Path, help="where vocabularies are kept")
    return p.parse_args()


def ours(program, folder, texts):
    """Ids that the engine gives the texts, in parts of 5000 texts."""
    for at in range(0, len(texts), 5000):
        blob = b"".join(struct.pack("<I", len(t)) + t
                        for t in (s.encode() for s in texts[at:at + 5000]))
        out = subprocess.run([program, str(folder)], input=blob, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL if at else None, check=True).stdout
        yield from ([int(i) for i in line.split()] for line in out.decode().split("\n")[:-1])


def compare(kind, o, work):
    import transformers
    folder = work / kind
    if not folder.is_dir():
        lm_vocab.KINDS[kind](folder, lm_texts.corpus(), o.pieces)
    reference = getattr(transformers, lm_vocab.CLASSES[kind]).from_pretrained(folder)
    texts = lm_texts.random_texts(random.Random(o.seed), o.count)
    bad = 0
    mine = ours(o.ids, folder, texts)
    for at in range(0, len(texts), 5000):
        part = texts[at:at + 5000]
        for text, want in zip(part, reference(part).input_ids):
            have = next(mine)
            bad += have != want
            if have != want and bad <= 5:
                print(f"{kind}: {text[:300]!r}\n  wanted {want[:60]}\n  have   {have[:60]}")
    print(f"{kind}: {len(texts)} texts, {bad} differ")
    return bad


def main():
    o = arguments()
    work = o.work or pathlib.Path(tempfile.mkdtemp())
    bad = [compare(kind, o, work) for kind in o.kinds or lm_vocab.KINDS]
    return 1 if any(bad) else 0


if __name__ == "__main__":
    sys.exit(main())
