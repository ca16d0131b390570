"""A transformer or an autoencoder of the library, with weights from torch tensors."""
from __future__ import annotations

import json
import warnings
from typing import Any, Callable

import torch

from ._errors import InvalidRequest, Unsupported
from ._library import Kept, check, ffi, interruptible, lib, lock, new_error, record, text

_TYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


def classes(kind: str) -> list[str]:
    """Lists the classes of diffusers that the library supports as "transformer" or "vae"."""
    names: list[str] = []
    name = ffi.new("char[]", kind.encode())
    while p := lib.xd_module_class(name, len(names)):
        names.append(text(p))
    return names


def type_name(dtype: torch.dtype) -> str | None:
    """Returns the library's name of a dtype; None: unsupported."""
    return _TYPES.get(dtype)


def _fill(array: Any, value: torch.Tensor | None, kept: Kept, name: str | None = None) -> None:
    """Fills an xd_array from a tensor, without a copy if it is contiguous."""
    if value is None:
        return
    value = value.detach()
    if value.device.type != "cpu":
        raise InvalidRequest(f"{name or 'a tensor'} is on {value.device}; xdit computes on the "
                             "CPU: call pipe.to('cpu')")
    if value.dim() > lib.XD_ARRAY_DIMS:
        raise InvalidRequest(f"a tensor has {value.dim()} dimensions; the limit is "
                             f"{lib.XD_ARRAY_DIMS}")
    value = value if value.dtype in _TYPES else value.to(torch.float32)
    value = kept.keep(value.contiguous())
    array.name, array.dtype = kept.text(name), kept.text(_TYPES[value.dtype])
    array.data = ffi.cast("void *", value.data_ptr())
    array.nd = value.dim()
    for i, extent in enumerate(value.shape):
        array.d[i] = extent


def _floats(value: torch.Tensor) -> Any:
    return ffi.cast("float *", value.data_ptr())


class Module:
    """An xd_module. weights: named tensors; with in_place the module keeps and reads them, else it
    copies them."""

    def __init__(self, config: dict[str, Any], weights: dict[str, torch.Tensor], *,
                 dtype: str | None, weights_dtype: str | None, in_place: bool, threads: int):
        a, e, kept = record("xd_module_args"), new_error(), Kept()
        rows = kept.keep(ffi.new("xd_array[]", len(weights)))
        for row, (name, value) in zip(rows, weights.items()):
            _fill(row, value, kept, name)
        a.config = kept.text(json.dumps(config, default=str))
        a.weights, a.nweights, a.in_place = rows, len(weights), in_place
        a.dtype, a.weights_dtype = kept.text(dtype), kept.text(weights_dtype)
        a.threads, a.log_level = threads, lib.XD_LOG_WARN

        @ffi.callback("void(void *, int, const char *)")
        def write(_, level, line):
            warnings.warn(text(line), stacklevel=2)
        a.log = write
        self._log = write                       # alive until the module is closed
        self._weights = kept if in_place else None
        self._module = ffi.new("xd_module **")
        with lock:
            check(lib.xd_module_open(self._module, ffi.addressof(a[0]), e), e)

    def close(self) -> None:
        with lock:
            lib.xd_module_close(self._module)
        self._weights = None

    def __del__(self) -> None:
        if getattr(self, "_module", None):
            def close(module=self._module, kept=(self._log, self._weights),
                      end=lib.xd_module_close):
                end(module)             # uses `kept` until it returns
            lock.close(close)

    @property
    def bytes(self) -> int:
        """Bytes of copied weights."""
        return lib.xd_module_bytes(self._module[0])

    def _call(self, function: Callable, *args: Any) -> None:
        e = new_error()
        if not self._module[0]:
            raise InvalidRequest("the module is closed: xdit.restore has been called")
        with lock, interruptible(lambda: lib.xd_module_cancel(self._module[0])):
            check(function(self._module[0], *args, e), e)

    def run(self, latents: torch.Tensor, **inputs: Any) -> torch.Tensor:
        """Predicts one sample, f32, in the layout of the latents. inputs: fields of xd_pass."""
        p, kept, e = record("xd_pass"), Kept(), new_error()
        _fill(p.latents, latents, kept)
        for name in ("text", "image", "pooled", "reference"):
            _fill(getattr(p, name), inputs.pop(name, None), kept, name)
        references = inputs.pop("references", None)
        if references:
            p.references = kept.keep(ffi.new("int64_t[][2]", [list(r) for r in references]))
            p.nreferences = len(references)
        residuals = inputs.pop("residuals", None)
        if residuals:
            rows = kept.keep(ffi.new("xd_array[]", len(residuals)))
            for row, value in zip(rows, residuals):
                _fill(row, value, kept, "residual")
            at = inputs.pop("residual_at")
            p.residuals, p.nresiduals = rows, len(rows)
            p.residual_at, p.nresidual_at = kept.keep(ffi.new("int64_t[]", at)), len(at)
        for name, value in inputs.items():
            setattr(p, name, value)
        shape = ffi.new("int64_t[]", latents.dim())
        check(lib.xd_module_predicted(self._module[0], latents.dim(), list(latents.shape), shape,
                                      e), e)
        out = torch.empty(list(shape), dtype=torch.float32)
        self._call(lib.xd_module_pass, p, _floats(out))
        return out

    def _shape(self, function: Callable, shape: list[int]) -> list[int]:
        e, to = new_error(), ffi.new("int64_t[4]")
        check(function(self._module[0], shape, to, e), e)
        return list(to)

    def decode(self, latents: torch.Tensor, tiled: bool) -> torch.Tensor:
        """Decodes latents [T,C,h,w] to pixels [frames,H,W,3], or 4 channels, f32."""
        a, kept = ffi.new("xd_array *"), Kept()
        _fill(a, latents, kept, "latents")
        out = torch.empty(self._shape(lib.xd_module_decoded, list(latents.shape)))
        self._call(lib.xd_module_decode, a, int(tiled), _floats(out))
        return out

    def encode(self, pixels: torch.Tensor, tiled: bool) -> torch.Tensor:
        """Encodes pixels [frames,H,W,3] to moments [T,h,w,2C], f32."""
        a, kept = ffi.new("xd_array *"), Kept()
        _fill(a, pixels, kept, "pixels")
        out = torch.empty(self._shape(lib.xd_module_encoded, list(pixels.shape)))
        self._call(lib.xd_module_encode, a, int(tiled), _floats(out))
        return out


def weights_of(module: torch.nn.Module, what: str) -> dict[str, torch.Tensor]:
    """Returns the floating-point tensors of a torch module by name."""
    state = module.state_dict()
    for name, value in state.items():
        if value.device.type != "cpu":
            cure = ("its weights are offloaded: call this before enable_model_cpu_offload and "
                    "the like" if value.device.type == "meta" else "pipe.to('cpu')")
            raise Unsupported(f"{what}: {name} is on {value.device}, and xdit computes on the CPU: "
                              f"{cure}")
        if type(value) is not torch.Tensor or value.is_floating_point() and \
                value.dtype not in _TYPES:
            raise Unsupported(f"{what}: {name} is a {type(value).__name__} of {value.dtype}; "
                              "weights must be float32, bfloat16 or float16: load the pipeline "
                              "without quantization, and pass weights_dtype")
    return {name: value for name, value in state.items() if value.is_floating_point()}
