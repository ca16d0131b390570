"""Converts images for libxdit: PIL images, numpy arrays, tensors, lists of frames."""
from __future__ import annotations

import os
from typing import Any

import numpy as np

from ._library import Kept, ffi, record


def is_path(v: Any) -> bool:
    return isinstance(v, (str, os.PathLike))


def to_array(v: Any) -> np.ndarray:
    """Converts an image to levels [H,W,C] of 0 to 255, frames to [F,H,W,C]. Floats are 0 to 1."""
    if isinstance(v, (list, tuple)):
        return np.stack([to_array(f) for f in v])
    if hasattr(v, "convert"):                   # PIL: palettes and 1 bit become RGB
        v = v if v.mode in ("RGB", "RGBA", "L") else v.convert("RGB")
    elif hasattr(v, "detach"):                  # a tensor of torch: channels come first
        v = v.detach().cpu().float().numpy()
        if v.ndim >= 3 and v.shape[-3] in (1, 3, 4):
            v = np.moveaxis(v, -3, -1)
    a = np.asarray(v)
    if a.ndim == 2:
        a = a[:, :, None]
    if a.ndim not in (3, 4) or a.shape[-1] not in (1, 3, 4):
        raise TypeError("an image must have the shape [H,W], [H,W,3] or [H,W,4], not "
                        f"{list(a.shape)}")
    if a.dtype != np.uint8:
        a = np.clip(np.rint(a * 255.0), 0, 255).astype(np.uint8) if a.dtype.kind == "f" else \
            np.clip(a, 0, 255).astype(np.uint8)
    return np.ascontiguousarray(a)


def to_c(v: Any, kept: Kept) -> Any:
    """Converts an image to an xd_image; `kept` owns its pixels."""
    a = kept.keep(to_array(v))
    im = kept.keep(record("xd_image"))
    im.frames = a.shape[0] if a.ndim == 4 else 1
    im.height, im.width, im.channels = a.shape[-3:]
    im.data = kept.keep(ffi.from_buffer("uint8_t[]", a))
    return im


def to_numpy(im: Any) -> np.ndarray:
    """Copies the levels [F,H,W,C] of an xd_image."""
    shape = (im.frames, im.height, im.width, im.channels)
    raw = ffi.buffer(im.data, int(np.prod(shape)))
    return np.frombuffer(raw, np.uint8).reshape(shape).copy()


def sound_to_numpy(samples: Any, size: Any) -> np.ndarray:
    """Copies the samples [n,channels] of a sound. size: an xd_audio_size."""
    raw = ffi.buffer(samples, size.samples * size.channels * 4)
    return np.frombuffer(raw, np.float32).reshape(size.samples, size.channels).copy()


def concatenate(values: list[Any]) -> Any:
    """Concatenates arrays, or tensors of torch."""
    if isinstance(values[0], np.ndarray):
        return np.concatenate(values)
    import torch
    return torch.cat(values)
