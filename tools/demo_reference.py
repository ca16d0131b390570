#!/usr/bin/env python3
"""Write what the demo checkpoint must paint: tests/golden/demo_sheet.png and demo_prompts.json.

    pip install torch diffusers transformers sentencepiece pillow
    tools/demo_reference.py [--compare SHEET.png]

The sheet has twelve pictures of 128 x 128, four in a row, painted by diffusers in f32 with
torch.Generator("cpu") and seeds 0 to 11; --compare says how far another sheet is from it. Of the 24
colour prompts (seeds 0 to 23) demo_prompts.json also keeps the colours that diffusers painted, and
those it painted with the stale keys and values of PipeFusion (golden_stale.py).
"""
import argparse
import json
from pathlib import Path

import diffusers
import numpy as np
import torch
from diffusers import PixArtAlphaPipeline
from PIL import Image

from golden_stale import Painter
from train_demo import COLOURS, SIZE

ROOT = Path(__file__).resolve().parent.parent
STEPS, GUIDANCE, ACROSS = 20, 4.5, 4
PATCHES, WARMUP = 4, 1
SHEET = [
    "a large red circle on a blue background",
    "a green triangle on the left on a yellow background",
    "a white star on a black background",
    "a purple ring on an orange background",
    "a pink diamond above a gray square on a green background",
    "a small cyan square at the top on a brown background",
    "a yellow circle next to a red star on a white background",
    "a large orange star on a purple background",
    "a blue square above a red circle on a yellow background",
    "a large yellow circle on a black background",
    "a green ring left of a purple star on a white background",
    "a red triangle on the right on a gray background",
]


def article(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


def colour_prompts():
    """Every colour twice as foreground and twice as background; seeds run on."""
    names, out = list(COLOURS), []
    for i in range(24):
        shape = ("circle", "square", "diamond")[i % 3]
        front, back = names[i % 12], names[(i % 12 + (5 if i < 12 else 7)) % 12]
        out.append({"prompt": f"a large {front} {shape} on {article(back)} background", "seed": i,
                    "centre": front, "rim": back})
    return out


def nearest(rgb):
    return min(COLOURS, key=lambda c: sum((a - b) ** 2 for a, b in zip(COLOURS[c], rgb)))


def seen(pixels):
    """Colours of the middle 16 x 16 pixels and of the 8-pixel rim: medians, nearest of the twelve."""
    h, w, _ = pixels.shape
    middle = pixels[h // 2 - 8:h // 2 + 8, w // 2 - 8:w // 2 + 8].reshape(-1, 3)
    edge = np.ones((h, w), bool)
    edge[8:-8, 8:-8] = False
    return nearest(np.median(middle, axis=0)), nearest(np.median(pixels[edge], axis=0))


def paint(pipe, prompt, seed):
    return np.asarray(pipe(prompt, num_inference_steps=STEPS, guidance_scale=GUIDANCE, height=SIZE, width=SIZE,
                           generator=torch.Generator("cpu").manual_seed(seed), use_resolution_binning=False,
                           clean_caption=False).images[0])


def paint_stale(pipe, prompt, seed):
    req = {"prompts": [prompt], "negative_prompt": "", "height": SIZE, "width": SIZE, "seed": seed,
           "num_inference_steps": STEPS, "guidance_scale": GUIDANCE}
    with torch.no_grad():
        lat = Painter(pipe, req).pipefusion(PATCHES, WARMUP)[None]
        rgb = pipe.vae.decode(lat / pipe.vae.config.scaling_factor).sample
    return np.asarray(pipe.image_processor.postprocess(rgb)[0])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--compare", type=Path)
    o = ap.parse_args()
    diffusers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    pipe = PixArtAlphaPipeline.from_pretrained(ROOT / "models" / "demo-pixart", torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    cells = [paint(pipe, p, i) for i, p in enumerate(SHEET)]
    rows = [np.concatenate(cells[i:i + ACROSS], axis=1) for i in range(0, len(cells), ACROSS)]
    sheet = np.concatenate(rows)
    Image.fromarray(sheet).save(ROOT / "tests" / "golden" / "demo_sheet.png", optimize=True)
    if o.compare:
        other = np.asarray(Image.open(o.compare).convert("RGB")).astype(int)
        print("largest difference", np.abs(other - sheet).max(), "of 255")
    prompts = colour_prompts()
    for p in prompts:
        p["diffusers"] = list(seen(paint(pipe, p["prompt"], p["seed"])))
    for p in prompts:           # the last thing done with the pipeline: its attention is replaced
        p["stale"] = list(seen(paint_stale(pipe, p["prompt"], p["seed"])))
    for how in ("diffusers", "stale"):
        right = sum(p[how] == [p["centre"], p["rim"]] for p in prompts)
        print(f"{how}: {right} of {len(prompts)} in their colours")
    text = {"steps": STEPS, "guidance_scale": GUIDANCE, "size": SIZE, "across": ACROSS,
            "patches": PATCHES, "warmup": WARMUP,
            "colours": {k: list(v) for k, v in COLOURS.items()},
            "sheet": [{"prompt": p, "seed": i} for i, p in enumerate(SHEET)], "colour_prompts": prompts}
    (ROOT / "tests" / "golden" / "demo_prompts.json").write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()
