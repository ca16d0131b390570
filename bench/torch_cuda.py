#!/usr/bin/env python3
"""What PyTorch reaches on this GPU: products by cuBLAS, attention by cuDNN and by flash
attention, convolutions by cuDNN, and a copy; bf16, lines of JSON.

    torch_cuda.py [--seconds S]
"""
import argparse
import json
import sys

import need

need.packages("torch")
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

PRODUCTS = [(8192, 8192, 8192), (4096, 3072, 12288), (4608, 3072, 9216), (4096, 1152, 4608),
            (17776, 3072, 12288)]
HEADS = [(24, 4608, 128), (16, 4096, 72), (48, 17776, 64)]
MAPS = [(512, 128, 512, 512), (1024, 1024, 128, 128), (256, 256, 512, 512)]    # H, W, C, O


def seconds_of(call, seconds):
    """The median of single runs, timed by events, after two that do not count."""
    call(), call()
    times, spent = [], 0.0
    while spent < seconds or len(times) < 5:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
        spent += times[-1]
    return sorted(times)[len(times) // 2]


def show(what, shape, t, flop=0, size=0):
    row = dict(what=what, shape=shape, ms=round(t * 1e3, 4))
    if flop:
        row['tflops'] = round(flop / t / 1e12, 1)
    if size:
        row['tbps'] = round(size / t / 1e12, 3)
    print(json.dumps(row), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--seconds', type=float, default=0.5)
    seconds = parser.parse_args().seconds
    if not torch.cuda.is_available():
        need.fail('PyTorch finds no GPU')
    some = dict(device='cuda', dtype=torch.bfloat16)
    print(json.dumps(dict(gpu=torch.cuda.get_device_name(), torch=torch.__version__,
                          cudnn=torch.backends.cudnn.version())), flush=True)
    a = torch.randn(1 << 29, **some)
    b = torch.empty_like(a)
    show('copy', [a.numel()], seconds_of(lambda: b.copy_(a), seconds), size=4 * a.numel())
    del a, b
    for n, k, m in PRODUCTS:
        x, w, bias = torch.randn(n, k, **some), torch.randn(m, k, **some), torch.randn(m, **some)
        show('product', [n, k, m], seconds_of(lambda: F.linear(x, w, bias), seconds), 2 * n * k * m)
    for h, n, d in HEADS:
        q, k, v = (torch.randn(1, h, n, d, **some) for _ in range(3))
        for name in ('CUDNN_ATTENTION', 'FLASH_ATTENTION'):
            try:
                with sdpa_kernel(getattr(SDPBackend, name)):
                    t = seconds_of(lambda: F.scaled_dot_product_attention(q, k, v), seconds)
                show(name.lower(), [h, n, d], t, 4 * h * n * n * d)
            except RuntimeError as e:
                print(json.dumps(dict(what=name.lower(), shape=[h, n, d], refused=str(e)[:200])))
    for h, w, c, o in MAPS:
        x = torch.randn(1, c, h, w, **some).to(memory_format=torch.channels_last)
        f = torch.randn(o, c, 3, 3, **some).to(memory_format=torch.channels_last)
        show('convolution', [h, w, c, o], seconds_of(lambda: F.conv2d(x, f, padding=1), seconds),
             18 * h * w * c * o)


if __name__ == '__main__':
    main()
