"""Texts for tokenizers of language models: what vocabularies are learned from, and what is
compared. All are random, of a given seed."""
import random

SCRIPTS = {  # ranges of letters of which words are made
    "latin": [(0x61, 0x7a)] * 6 + [(0xe0, 0xf6), (0xf8, 0x17f)], "greek": [(0x3b1, 0x3c9)],
    "cyrillic": [(0x430, 0x44f)], "armenian": [(0x561, 0x586)], "hebrew": [(0x5d0, 0x5ea)],
    "arabic": [(0x621, 0x63a), (0x641, 0x64a)], "devanagari": [(0x905, 0x939), (0x93e, 0x94d)],
    "bengali": [(0x985, 0x9b9), (0x9be, 0x9cd)], "tamil": [(0xb85, 0xbb9), (0xbbe, 0xbcd)],
    "thai": [(0xe01, 0xe3a), (0xe40, 0xe4e)], "georgian": [(0x10d0, 0x10f0)],
    "hangul": [(0xac00, 0xad00)], "kana": [(0x3041, 0x3093), (0x30a1, 0x30f3)],
    "han": [(0x4e00, 0x4fff)], "upper": [(0x41, 0x5a), (0xc0, 0xd6), (0x391, 0x3a9),
                                         (0x410, 0x42f)],
    "newer": [(0x10d40, 0x10d85), (0x11380, 0x113b5), (0x16d40, 0x16d79), (0x1e4d0, 0x1e4f9),
              (0xa7c0, 0xa7dc), (0x1c80, 0x1c8a), (0x31350, 0x31360)],
}
SPACES = list("\t\n\x0b\x0c\r \x1c\x1d\x1e\x1f\x85\xa0\u1680\u180e\u2000\u2003\u200a\u200b\u2028"
              "\u2029\u202f\u205f\u2060\u3000\ufeff") + ["\r\n", "\n\n", "  ", "   "]
TOKENS = """<|endoftext|> <|im_start|> <|im_end|> <think> </think> <|begin_of_text|>
    <|start_header_id|> <|end_header_id|> <|eot_id|> <s> </s> [INST] [/INST] [IMG] <pad> <unk>
    [SYSTEM_PROMPT] [/SYSTEM_PROMPT] <bos> <eos> <mask> <start_of_turn> <end_of_turn> <unused0>
    <table> <|left|> <|right|> <|both|> circle circles <|im_start <|im_ <0x0A> <tool_call>
    <0xE2>""".split() + ["Red Fox", "Red  Fox", "red circle", "\u2581\u2581", "\u2581", "\n\n\n",
                         "user\n", "assistant\n", "system\n"]
ENDS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'Ve", "'\u017f", "'LL",
        "\u2019s", "'", "''", "don't", "I'M", "we'll"]
MARKS = ["\u0301", "\u0308", "\u0323", "\u0316", "\u0338", "\u093c", "\u0bbe", "\u0e31", "\u3099",
         "\u200d", "\ufe0f", "\u20e3", "\u0897", "\U000113c2", "\u0345", "\u1ac0"]
EMOJI = ["\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd",
         "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "\U0001fae8", "\U0001f3f4\U000e0067\U000e007f"]
NUMBERS = ["0", "7", "12", "123", "1234", "12345678", "3.14", "1,000", "\u0663\u0664", "\u00bd",
           "\u2167", "\u0967\u0968", "\u4e09", "\U0001d7d8", "\U00010d40", "1e-5", "\u00b2"]
SIGNS = list("!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~") + ["...", "--", "://", "/n", "\u2014", "\u201c",
         "\u201d", "\u3001", "\u3002", "\u00bf", "\u20ac", "\u2192", "!\n", "?\r\n", "//\n", "/"]
WORDS = ("a the red blue green yellow circle square cat dog castle river watercolour astronaut "
         "portrait photo of in on under with background Large SMALL cinematic lighting ancient "
         "futuristic neon shadow detailed engraving mountain forest robot dragon glass street snow "
         "standing walking holding reflection sunset texture symmetrical minimal abstract").split()


def word(rng, script=None):
    ranges = SCRIPTS[script or rng.choice(list(SCRIPTS))]
    return "".join(chr(rng.randint(*rng.choice(ranges))) for _ in range(rng.randint(1, 9)))


def corpus():
    """Words of every script by Zipf's law, and English ones."""
    rng = random.Random(20261123)
    texts = [" ".join(rng.choices(WORDS, k=40)) + ".\n" for _ in range(300)]
    for script in SCRIPTS:
        known = [word(rng, script) for _ in range(300)]
        known += [w + rng.choice(ENDS) for w in known[:5]]
        weights = [1 / (i + 1) for i in range(len(known))]
        gap = "" if script in ("han", "kana", "thai") else " "
        for _ in range(60):
            words = rng.choices(known, weights, k=30)
            if script == "latin":
                words = [w.capitalize() if rng.random() < 0.2 else w for w in words]
            texts.append(gap.join(words) + rng.choice([".", "!\n", "\n\n", " ", "...", "\u3002"]))
    texts += [" ".join(rng.choices(WORDS + SIGNS + NUMBERS + EMOJI, k=30)) for _ in range(300)]
    return texts


def anything(rng):
    while True:
        c = rng.choice([rng.randrange(0x80), rng.randrange(0x3000), rng.randrange(0x10000),
                        rng.randrange(0x110000)])
        if not 0xd800 <= c < 0xe000:
            return chr(c)


def run(rng):
    n = rng.choice([3, 8, 17, 33, 70, 300])
    one = rng.choice([word(rng)[0], rng.choice(SPACES), rng.choice(SIGNS), rng.choice(MARKS), "a",
                      " ", "\n", "A", "0", "ab", "aA", anything(rng)])
    return one * n


def mixture(rng, n):
    parts = [lambda: rng.choice(WORDS), lambda: word(rng), lambda: " ",
             lambda: rng.choice(SPACES), lambda: rng.choice(TOKENS), lambda: rng.choice(ENDS),
             lambda: rng.choice(MARKS), lambda: rng.choice(EMOJI), lambda: rng.choice(NUMBERS),
             lambda: rng.choice(SIGNS), lambda: anything(rng), lambda: word(rng).upper(),
             lambda: chr(rng.randrange(32))]
    return "".join(rng.choice(parts)() for _ in range(n))


def sentence(rng):
    script = rng.choice(list(SCRIPTS))
    words = [rng.choice(WORDS) if rng.random() < 0.4 else word(rng, script)
             for _ in range(rng.randint(1, 25))]
    return rng.choice(["", " ", "\n"]) + rng.choice([" ", " ", "  ", ", ", ". ", "\n"]).join(words)


def chat(rng):
    return (f"<|im_start|>user\n{mixture(rng, 5)}<|im_end|>\n<|im_start|>assistant\n" +
            rng.choice(["", "<think>\n\n</think>\n\n"]))


def random_texts(rng, count):
    out = ["", " ", "\n", "\t", "a", " a", "a ", "\0", "\r\n"]
    while len(out) < count:
        kind = rng.random()
        out.append(sentence(rng) if kind < 0.3 else chat(rng) if kind < 0.35 else
                   run(rng) + mixture(rng, 2) + run(rng) if kind < 0.45 else
                   "".join(anything(rng) for _ in range(rng.randint(1, 30))) if kind < 0.55 else
                   mixture(rng, rng.randint(1, 16)))
    return out[:count]
