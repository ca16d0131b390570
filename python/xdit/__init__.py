"""Images and videos from prompts with Diffusion Transformers, on one rank or many.

    import xdit
    pipe = xdit.Pipeline.from_pretrained("models/demo-pixart")
    image = pipe("a large red circle on a blue background", num_inference_steps=20).images[0]

libxdit computes; its header xdit.h describes each option.
"""
from __future__ import annotations

from typing import Any as _Any

from ._errors import (Cancelled, CommunicationError, DeviceError, Error, FileError, FormatError,
                      InvalidRequest, OutOfMemory, Unsupported)
from ._library import about, version as _version
from ._pipeline import Output, Pipeline
from ._plan import Plan, Plans, plan
from ._runner import Runner
from ._tools import Comparison, compare, inspect


def accelerate(pipe: _Any, weights_dtype: str | None = None, vae: bool = True,
               release: bool = False, threads: int = 0, *, dtype: _Any = None,
               copy: bool = False) -> _Any:
    """Runs the networks of a diffusers pipeline with xdit; see _accelerate.accelerate."""
    from ._accelerate import accelerate as run
    return run(pipe, weights_dtype, vae, release, threads, dtype=dtype, copy=copy)


def restore(pipe: _Any) -> _Any:
    """Undoes accelerate; returns the pipeline."""
    from ._accelerate import restore as run
    return run(pipe)


__version__ = _version()
__all__ = ["Cancelled", "CommunicationError", "Comparison", "DeviceError", "Error", "FileError",
           "FormatError", "InvalidRequest", "OutOfMemory", "Output", "Pipeline", "Plan", "Plans",
           "Runner", "Unsupported", "about", "accelerate", "compare", "inspect", "plan", "restore"]
