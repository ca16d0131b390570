"""Inspection of models, and comparison of images."""
from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from . import _pixels
from ._library import Kept, check, ffi, lib, lock, new_error, record, text


def inspect(model: Any) -> dict[str, Any]:
    """Describes a model directory or a weight file, as `xdit inspect --json` prints it. The list
    "missing" names missing and wrong tensors."""
    lines, kept, a, e = [], Kept(), record("xd_inspect_args"), new_error()

    @ffi.callback("void(void *, const char *)")
    def line(_, s):
        lines.append(text(s))
    a.model, a.json, a.line = kept.text(model), 1, line
    with lock:
        status = lib.xd_inspect(a, e)
    if not lines:
        check(status, e)
    return json.loads("".join(lines))


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Differences of two images or videos. Levels are 0 to 255."""
    frames: int
    width: int
    height: int
    psnr: float                 # decibels; infinite: equal
    ssim: float                 # 1: equal
    mean: float                 # mean absolute difference of levels
    largest: int                # largest difference of levels
    worst_frame: int            # the frame with the lowest PSNR, from 0

    @property
    def equal(self) -> bool:
        return math.isinf(self.psnr)


def compare(a: Any, b: Any) -> Comparison:
    """Compares two images (PIL, arrays) or two lists of frames, or two files or directories."""
    c, e, kept = record("xd_comparison"), new_error(), Kept()
    if _pixels.is_path(a) and _pixels.is_path(b):
        args = record("xd_compare_args")
        args.a, args.b = kept.text(a), kept.text(b)
        with lock:
            check(lib.xd_compare_files(args, c, e), e)
    else:
        images = [_pixels.to_c(v, kept) for v in (a, b)]
        with lock:
            check(lib.xd_compare_images(c, *images, e), e)
    return Comparison(c.frames, c.width, c.height, c.psnr, c.ssim, c.mean, c.most, c.worst)
