#!/usr/bin/env python3
"""Generates the same images by many plans and shows that they are the same.

usage: demo_parallel.py XDIT MODEL OUT.png [PROMPT]...

Prints a row for each plan: ranks, seconds of denoising, bytes that all ranks sent, the largest
difference from one rank in levels of 255, the PSNR, and the flags. OUT.png has a row for each
prompt and a column for each plan that has a name in PLANS. Every rank has one thread and computes
in f32: the rounding of bf16 is larger than the difference between tensor parallelism and one rank.
Needs Pillow (python3-pil) and the font DejaVu Sans (fonts-dejavu-core).
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import need

need.packages("PIL")
from PIL import Image, ImageChops, ImageDraw, ImageFont, ImageStat

PROMPTS = ["a large red circle on a blue background",
           "a large orange star on a purple background"]
# Ranks and flags of a plan, and for a column of the sheet a comma and the words below it.
PLANS = """
1, one process
2 --use_cfg_parallel, CFG
2 --ulysses_degree 2
2 --ring_degree 2
2 --tensor_parallel_degree 2
2 --pipefusion_parallel_degree 2
3 --ulysses_degree 3 --use_parallel_vae, Ulysses
3 --pipefusion_parallel_degree 3
4 --ulysses_degree 2 --use_cfg_parallel, Ulysses × CFG
4 --pipefusion_parallel_degree 4
4 --ring_degree 4 --use_displaced_patches --num_pipeline_patch 1
7 --ring_degree 7, ring
7 --pipefusion_parallel_degree 7, PipeFusion
""".strip().splitlines()
GAP, HEAD, FOOT = 8, 24, 62             # pixels between images, above and below a column
INK, GREY, BLUE = (36, 41, 47), (101, 109, 118), (84, 130, 200)


def generate(xdit, model, prompts, flags, folder):
    """Images of all prompts by one plan, seconds of denoising, bytes sent."""
    folder.mkdir()
    command = [xdit, "generate", "--model", model, "--quiet", "--json", "--threads", "1",
               "--dtype", "f32", "--output", folder / "%d.png", *flags]
    run = subprocess.run(command + [f"--prompt={p}" for p in prompts], stdin=subprocess.DEVNULL,
                         capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr.strip())
    made = [json.loads(line) for line in run.stdout.splitlines()]
    images = [Image.open(m["file"]).convert("RGB") for m in made]
    return images, made[-1]["batch_seconds"]["denoise"], made[-1]["sent"]


def difference(images, reference):
    """The largest difference in levels, and the PSNR of all images together in dB."""
    parts = [ImageStat.Stat(ImageChops.difference(a, b)) for a, b in zip(images, reference)]
    highest = max(high for p in parts for _, high in p.extrema)
    square = sum(sum(p.sum2) for p in parts) / sum(sum(p.count) for p in parts)
    return highest, 10 * math.log10(255 ** 2 / square) if square else math.inf


def draw(columns, path):
    """columns: (ranks, name, images, what was compared)."""
    plain, bold = (ImageFont.truetype(f"DejaVuSans{b}.ttf", 13) for b in ("", "-Bold"))
    w, h = columns[0][2][0].size
    rows = len(columns[0][2])
    sheet = Image.new("RGB", (len(columns) * (w + GAP) + GAP, HEAD + rows * (h + GAP) + FOOT),
                      "white")
    pen = ImageDraw.Draw(sheet)
    for i, (ranks, name, images, compared) in enumerate(columns):
        x, y = GAP + i * (w + GAP), HEAD
        for r in range(ranks):          # a square for each rank
            left = x + w / 2 + (r - ranks / 2) * 14
            pen.rectangle((left + 1, 6, left + 11, 16), fill=BLUE)
        for image in images:
            sheet.paste(image, (x, y))
            y += h + GAP
        lines = [(f"{ranks} rank" + "s" * (ranks > 1), bold, INK), (name, plain, GREY),
                 (compared, plain, GREY)]
        for n, (text, font, fill) in enumerate(lines):
            pen.text((x + w / 2, y + 8 + 18 * n), text, font=font, fill=fill, anchor="mm")
    sheet.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def main():
    if len(sys.argv) < 4:
        need.fail("usage: demo_parallel.py XDIT MODEL OUT.png [PROMPT]...")
    xdit, model, out, *prompts = sys.argv[1:]
    xdit = need.program(xdit, "app/xdit")
    prompts = prompts or PROMPTS
    print(f"{'ranks':>5}  {'seconds':>7}  {'bytes sent':>10}  {'max diff':>8}  {'PSNR':>7}  flags")
    columns, reference = [], None
    with tempfile.TemporaryDirectory() as folder:
        for i, plan in enumerate(PLANS):
            flags, _, name = plan.partition(", ")
            ranks, *flags = flags.split()
            images, seconds, sent = generate(xdit, model, prompts, flags,
                                             pathlib.Path(folder) / str(i))
            reference = reference or images
            highest, psnr = difference(images, reference)
            decibels = f"{psnr:.1f} dB" if psnr < math.inf else "equal"
            print(f"{ranks:>5}  {seconds:7.2f}  {sent:10d}  {highest:8d}  {decibels:>7}  "
                  f"{' '.join(flags)}")
            if name:
                columns.append((int(ranks), name, images, "the reference" if i == 0 else
                                f"PSNR {decibels}" if highest > 2 else
                                f"max difference {highest}"))
    draw(columns, out)


main()
