"""Control images that OpenCV's functions compute from images of shapes and noise.

annotate.safetensors has "rgb.IMAGE", [h,w,3], and "IMAGE.HOW" for each annotator HOW, as a user
writes it. Edges have the numbers of cv2.Canny with L1 gradients and Sobel kernels of 3 x 3.
"""
import cv2
import numpy as np
import torch
from safetensors.torch import save_file

HOWS = ("canny", "canny:50:100", "canny:20:20.5", "gray", "blur", "blur:1.5", "tile", "tile:2")


def shapes(w, h, seed, noise):
    r = np.random.default_rng(seed)
    image = np.zeros((h, w, 3), np.uint8)
    for _ in range(8):
        at = [int(v) for v in r.integers(0, (w, h))]
        colour = [int(v) for v in r.integers(0, 256, 3)]
        cv2.circle(image, at, int(r.integers(2, max(w, h) // 2)), colour, -1)
        cv2.line(image, at, [int(v) for v in r.integers(0, (w, h))], colour, 1)
    moved = image.astype(int) + r.integers(-noise, noise + 1, image.shape)
    return cv2.GaussianBlur(moved.clip(0, 255).astype(np.uint8), (3, 3), 0.8)


def smooth(w, h):
    y, x = np.mgrid[:h, :w]
    waves = [np.sin(x / 7 + y / 11), np.cos(x / 5 - y / 9), np.sin(x * y / 200)]
    return ((np.stack(waves, -1) + 1) * 127.5).astype(np.uint8)


def annotate(image, how):
    name, *numbers = how.split(":")
    v = [float(n) for n in numbers]
    if name == "canny":
        return np.repeat(cv2.Canny(image, *(v or (100, 200)))[..., None], 3, -1)
    if name == "gray":
        return np.repeat(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)[..., None], 3, -1)
    if name == "blur":
        return cv2.GaussianBlur(image, (0, 0), v[0] if v else 9)
    times = int(np.log2(v[0] if v else 8))
    h, w = image.shape[:2]
    small = cv2.resize(image, (max(w >> times, 1), max(h >> times, 1)),
                       interpolation=cv2.INTER_AREA)
    for _ in range(times):
        small = cv2.pyrUp(small)
    return small


def make(names, options):
    images = {"shapes": shapes(61, 47, 1, 12), "noise": shapes(48, 64, 2, 90),
              "smooth": smooth(80, 33), "line": shapes(40, 3, 3, 30), "dot": shapes(9, 9, 4, 40)}
    out = {}
    for name, image in images.items():
        out["rgb." + name] = torch.from_numpy(image)
        for how in HOWS:
            out[f"{name}.{how}"] = torch.from_numpy(np.ascontiguousarray(annotate(image, how)))
    save_file(out, options.out / "annotate.safetensors")
