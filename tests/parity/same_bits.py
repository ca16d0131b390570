#!/usr/bin/env python3
"""same_bits.py XDIT GOLDEN PAGES_SO - the same plan on the same machine generates the same bits.

However ranks exchange numbers - in huge pages that they share, in small ones, by messages, or some
of them so and some not - a plan gives the same image. That of a ring is one rank's, where the
kernels give a row the same bits beside other rows (AVX-512). Tensor parallelism adds in another
order: its image is as near to f32 as one rank's. GOLDEN: a build's tests/golden/full.
TAP."""
import ctypes
import math
import os
import subprocess
import sys
import tempfile

XDIT, GOLDEN, PAGES = sys.argv[1:4]
PR_SET_THP_DISABLE = 41
SMALL = ["-W", "64", "-H", "48"]
MODELS = {
    "alpha": ["--negative_prompt", "green"],
    "flux": SMALL + ["--true_cfg_scale", "2", "--negative_prompt", "green"],
    "sd3": SMALL,
    "cog15": SMALL + ["--num_frames", "9"],
}
CASES = [("alpha", "f32"), ("alpha", "bf16"), ("flux", "bf16"), ("sd3", "f32"), ("cog15", "bf16")]
RINGS = [
    ["--ring_degree", "2"],
    ["--ring_degree", "3"],
    ["--ulysses_degree", "2", "--ring_degree", "2"],
]
OTHERS = [
    ["--tensor_parallel_degree", "2"],
    ["--pipefusion_parallel_degree", "2", "--ring_degree", "2", "--num_pipeline_patch", "2",
     "--warmup_steps", "1"],
]
# Types that round; decibels that tensor may be farther from f32 than one rank (measured: 0.7).
ROUNDED = [("sd3", ["--dtype", "bf16"]), ("flux", ["--weights_dtype", "int8"]),
           ("cog15", ["--weights_dtype", "fp8"])]
FARTHER = 1.5
# What is wrong with the memory between ranks, and whether they read each other's all the same.
WAYS = {
    "as it is": ({}, None),
    "no huge pages": ("thp", True),
    "no huge pages on odd ranks": ({"PAGES": "collapse", "PAGES_RANKS": "odd"}, True),
    "no shared memory": ({"PAGES": "populate"}, False),
    "none on odd ranks": ({"PAGES": "populate", "PAGES_RANKS": "odd"}, False),
}
count = failed = 0


def check(ok, what, why=""):
    global count, failed
    count += 1
    failed += not ok
    print(f"{'ok' if ok else 'not ok'} {count} - {what}")
    if not ok and why:
        print("# " + why.strip().replace("\n", "\n# "))


def without_huge_pages():
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


def generate(folder, model, types, plan, way):
    """The pixels, and what was said; no pixels after a failure."""
    out = os.path.join(folder, "x.rgb" if model.startswith("cog") else "x.ppm")
    if os.path.exists(out):
        os.unlink(out)
    env, before = dict(os.environ), None
    if way == "thp":
        before = without_huge_pages
    elif way:
        env.update(way, LD_PRELOAD=PAGES)
    run = subprocess.run(
        [XDIT, "generate", "-v", "-m", os.path.join(GOLDEN, model), "-p", "a red circle", "--seed",
         "3", "--steps", "2", "-o", out] + types + MODELS[model] + plan,
        env=env, preexec_fn=before, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, timeout=120)
    if run.returncode != 0:
        return None, run.stderr
    with open(out, "rb") as f:
        data = f.read()
    return (data if out.endswith(".rgb") else data[data.index(b"\n255\n") + 5:]), run.stderr


def apart(a, b):
    if not a or not b or len(a) != len(b):
        return "another size"
    return f"up to {max(abs(x - y) for x, y in zip(a, b))} levels apart"


def decibels(a, b):
    """The PSNR; those that 8 bits can hardly tell apart count alike."""
    sum_of_squares = sum((x - y) ** 2 for x, y in zip(a, b))
    return min(10 * math.log10(255 * 255 * len(a) / sum_of_squares), 60) if sum_of_squares else 60


def as_near(folder, model, types):
    name = f"{model} {' '.join(types)}"
    want, said = generate(folder, model, ["--dtype", "f32"], ["-t", "1"], {})
    one, _ = generate(folder, model, types, ["-t", "1"], {})
    cut, _ = generate(folder, model, types, ["--tensor_parallel_degree", "2"], {})
    check(want and one and cut, f"{name}: generated", said)
    if want and one and cut:
        db, of_one = decibels(cut, want), decibels(one, want)
        check(db >= of_one - FARTHER, f"{name}: tensor is as near to f32 as one rank",
              f"{db:.1f} dB, one rank {of_one:.1f}")


def keeps_bits():
    with open("/proc/cpuinfo") as f:
        return "avx512f" in f.read()


def one_plan(folder, model, dtype, plan, one, ways):
    name, first = f"{model} {dtype} {' '.join(plan)}", None
    for what in ways:
        way, reads = WAYS[what]
        pixels, said = generate(folder, model, ["--dtype", dtype], plan, way)
        if first is None:
            first = pixels
            check(first is not None, f"{name}: generated", said)
            if plan in RINGS and keeps_bits():
                check(first == one, f"{name}: one rank's image", apart(first, one))
            continue
        check(pixels == first, f"{name}: the same with {what}", apart(pixels, first))
        told = "read each other's memory" in said
        if reads is not None:
            check(told == reads, f"{name}, {what}: ranks {'read' if reads else 'send'}", said)


def main():
    with tempfile.TemporaryDirectory(prefix="xdit-bits.") as folder:
        for model, dtype in CASES:
            one, said = generate(folder, model, ["--dtype", dtype], ["-t", "1"], {})
            check(one is not None, f"{model} {dtype}: one rank", said)
            names = list(WAYS)
            for i, plan in enumerate(RINGS + OTHERS):
                some = [names[0], names[1 + i % 4], names[1 + (i + 2) % 4]]
                one_plan(folder, model, dtype, plan, one, names if dtype == "f32" else some)
        for model, types in ROUNDED:
            as_near(folder, model, types)
    print(f"1..{count}")
    return failed != 0


sys.exit(main())
