"""Prompts with weights as the A1111 web interface encodes them, with the encoders of a pipeline.

A text becomes characters with weights, then tokens with weights in chunks of 75. Each encoder's
rows of a chunk are multiplied by the weights, and then by a factor that restores their mean.
"""
import itertools
import re

import torch

ROOM, BACKTRACK = 75, 20


def characters(text):
    """[(character, weight)]; a BREAK is (None, None)."""
    found, i = [], 0
    brackets = {"(": [], "[": []}

    def close(kind, factor):
        for k in range(brackets[kind].pop(), len(found)):
            found[k][1] *= factor
    while i < len(text):
        weight = re.match(r":\s*([+-]?[.\d]+)\s*\)", text[i:])
        word = re.match(r"BREAK\b\s*", text[i:]) if i == 0 or not text[i - 1].isalnum() else None
        if text[i] == "\\":
            i += 1
            if i < len(text) and text[i] in "()[]\\":
                found.append([text[i], 1.0])
                i += 1
        elif word:
            while found and found[-1][0] and found[-1][0].isspace():
                found.pop()
            found.append([None, 1.0])
            i += word.end()
        elif text[i] in "([":
            brackets[text[i]].append(len(found))
            i += 1
        elif weight and brackets["("]:
            close("(", float(weight[1]))
            i += weight.end()
        elif text[i] == ")" and brackets["("]:
            close("(", 1.1)
            i += 1
        elif text[i] == "]" and brackets["["]:
            close("[", 1 / 1.1)
            i += 1
        else:
            found.append([text[i], 1.0])
            i += 1
    for kind, factor in (("(", 1.1), ("[", 1 / 1.1)):
        while brackets[kind]:
            close(kind, factor)
    return found


def chunks(tokenizer, text):
    """[(ids [77], weights [77])]"""
    comma = tokenizer(",", add_special_tokens=False).input_ids[0]
    done, now = [], []
    for (is_break, weight), run in itertools.groupby(characters(text),
                                                     lambda c: (c[0] is None, c[1])):
        if is_break:
            done += [now] + [[]] * (len(list(run)) - 1)
            now = []
            continue
        part = "".join(c for c, _ in run)
        for token in tokenizer(part, add_special_tokens=False, truncation=False).input_ids:
            if len(now) == ROOM:
                last = max((k for k, t in enumerate(now) if t[0] == comma), default=-1)
                near = token != comma and last >= 0 and ROOM - last <= BACKTRACK
                cut = last + 1 if near else ROOM
                done.append(now[:cut])
                now = now[cut:]
            now.append((token, weight))
    if now or not done:
        done.append(now)
    out = []
    for tokens in done:
        pad = [tokenizer.pad_token_id] * (ROOM - len(tokens))
        out.append(([tokenizer.bos_token_id, *(t for t, _ in tokens), tokenizer.eos_token_id, *pad],
                    [1.0, *(w for _, w in tokens), 1.0, *(1.0 for _ in pad)]))
    return out


def encode(pipe, text, count):
    """(ids of each tokenizer, rows, pooled rows or None) of a text in at least `count` chunks."""
    ids, rows, pooled = [], [], None
    for tail in ("", "_2"):
        tokenizer = getattr(pipe, "tokenizer" + tail, None)
        encoder = getattr(pipe, "text_encoder" + tail, None)
        if encoder is None:
            continue
        of = chunks(tokenizer, text)
        of += chunks(tokenizer, "") * (count - len(of))
        ids.append(torch.tensor([i for c, _ in of for i in c], dtype=torch.int32))
        parts = []
        for c, weights in of:
            out = encoder(torch.tensor([c]), output_hidden_states=True)
            z = out.hidden_states[-2] if hasattr(pipe, "text_encoder_2") else out[0]
            before = z.mean()
            z = z * torch.tensor(weights)[None, :, None]
            parts.append(z * (before / z.mean()))
            if tail and len(parts) == 1:
                pooled = out[0]
        rows.append(torch.cat(parts, 1))
    return ids, torch.cat(rows, -1), pooled


def count(pipe, text):
    return max(len(chunks(getattr(pipe, t), text)) for t in ("tokenizer", "tokenizer_2")
               if hasattr(pipe, t))
