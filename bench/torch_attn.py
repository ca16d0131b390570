#!/usr/bin/env python3
"""The attention of this program against PyTorch's, shape by shape, on the same threads.

    bench/torch_attn.py BENCH_ATTN [--threads 2] [--isa avx2] [--type f32] [--seconds 1]

For --isa avx2 start it with ATEN_CPU_CAPABILITY=avx2 in the environment. Each shape is timed in
turns, ours in a process of its own; medians are compared. Needs torch."""

import argparse
import json
import statistics
import subprocess
import time

import need

need.packages("torch")
import torch

SHAPES = [(n, heads, dim) for dim, heads in ((64, 16), (72, 16), (128, 24)) for n in (1024, 4096)]


def theirs(n, heads, dim, dtype, seconds):
    q, k, v = (torch.randn(1, n, heads, dim, dtype=dtype).transpose(1, 2) for _ in range(3))
    attend = torch.nn.functional.scaled_dot_product_attention
    took, end = [], time.monotonic() + seconds
    with torch.inference_mode():
        attend(q, k, v)
        while len(took) < 3 or time.monotonic() < end:
            start = time.perf_counter()
            attend(q, k, v)
            took.append(time.perf_counter() - start)
    return statistics.median(took) * 1e3


def main():
    p = argparse.ArgumentParser()
    p.add_argument("bench", help="build/bench/bench_attn")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--isa", default="avx2")
    p.add_argument("--type", default="f32", choices=("f32", "bf16"))
    p.add_argument("--seconds", type=float, default=1)
    a = p.parse_args()
    a.bench = need.program(a.bench, "bench/bench_attn")
    torch.set_num_threads(a.threads)
    dtype = torch.float32 if a.type == "f32" else torch.bfloat16
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}")
    for n, heads, dim in SHAPES:
        ours = [a.bench, "--json", f"isa={a.isa}", f"type={a.type}", f"threads={a.threads}",
                f"seconds={a.seconds}", f"n={n}", f"H={heads}", f"D={dim}"]
        got = json.loads(subprocess.run(ours, check=True, capture_output=True, text=True).stdout)
        ms = theirs(n, heads, dim, dtype, a.seconds)
        print(f"n {n:5} H {heads:2} D {dim:3}: ours {got['ms']:8.2f} ms ({got['share']:.1%} of "
              "peak), "
              f"torch {ms:8.2f} ms: {ms / got['ms']:.2f} x", flush=True)


if __name__ == "__main__":
    main()
