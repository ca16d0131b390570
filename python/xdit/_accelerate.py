"""Runs the transformers and autoencoders of diffusers pipelines with the library."""
from __future__ import annotations

import contextlib
import ctypes
import inspect
from typing import Any, Callable

import torch

from ._errors import InvalidRequest, Unsupported
from ._forwards import FORWARDS, Values, check
from ._module import Module, classes, type_name, weights_of

_TRANSFORMERS = ("transformer", "transformer_2", "unet")
_MINE = "_xdit"                 # attribute of accelerated torch modules
_REPLACED = ("forward", "decode", "encode")


# ---- refusals ------------------------------------------------------------------------------------

def _check_adapters(part: torch.nn.Module, what: str) -> None:
    """Refuses LoRA layers, which are not part of the weights."""
    if getattr(part, "_hf_peft_config_loaded", False) or \
            any("lora_" in name for name, _ in part.named_parameters()):
        raise Unsupported(f"{what} has LoRA layers: call pipe.fuse_lora() and "
                          "pipe.unload_lora_weights() before xdit.accelerate(pipe)")


def _check_processors(part: torch.nn.Module, what: str) -> None:
    for name, p in getattr(part, "attn_processors", {}).items():
        kind = type(p)
        if not kind.__module__.startswith("diffusers.models.") or \
                any(word in kind.__name__ for word in ("IPAdapter", "PAG", "XFormers", "Custom")):
            raise Unsupported(f"{what}: {name} is a {kind.__name__}, which xdit does not support: "
                              "set the model's own attention processors")


def _check_part(part: torch.nn.Module, what: str, known: list[str]) -> None:
    name = type(part).__name__
    if name not in known:
        cure = ": pass vae=False to keep that of torch" if what == "vae" else ""
        raise Unsupported(f"{what} is a {name}; xdit.accelerate supports {', '.join(known)}{cure}")
    replaced = [f for f in _REPLACED if f in part.__dict__]
    if replaced and _MINE not in part.__dict__:
        raise Unsupported(f"{what}: hooks have replaced its {replaced[0]} (offloading, a cache): "
                          "remove them, or load the pipeline again")
    _check_adapters(part, what)
    _check_processors(part, what)


# ---- a transformer -------------------------------------------------------------------------------

def _forward(part: torch.nn.Module, module: Module, what: str) -> Callable:
    """Returns the forward of an accelerated transformer, with the signature of its class."""
    name, plain = type(part).__name__, type(part).forward
    spec, signature = FORWARDS[name], inspect.signature(plain)

    def forward(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(part, *args, **kwargs)
        bound.apply_defaults()
        v: Values = dict(bound.arguments)
        check(name, v)
        if getattr(part, "_hf_peft_config_loaded", False):
            _check_adapters(part, what)
        if torch.is_grad_enabled() and any(torch.is_tensor(t) and t.requires_grad
                                           for t in v.values()):
            raise Unsupported(f"{name}.forward was called with gradients, which xdit does not "
                              "compute: call it under torch.no_grad()")
        with torch.no_grad():
            rows = [module.run(**p) for p in spec.passes(v, part.config)]
            out = spec.join(v, rows, part.config)
        if not v["return_dict"]:
            return (out,)
        from diffusers.models.modeling_outputs import Transformer2DModelOutput
        return Transformer2DModelOutput(sample=out)
    forward.__signature__ = inspect.Signature(list(signature.parameters.values())[1:])
    return forward


# ---- an autoencoder ------------------------------------------------------------------------------

# Class in diffusers -> class in the library. The pipelines of FLUX.2 unpack and normalize latents
# themselves, so that its autoencoder is a plain AutoencoderKL.
_VAES = {"AutoencoderKL": "AutoencoderKL", "AutoencoderKLFlux2": "AutoencoderKL",
         "AutoencoderKLCogVideoX": "AutoencoderKLCogVideoX", "AutoencoderKLWan": "AutoencoderKLWan",
         "AutoencoderKLHunyuanVideo": "AutoencoderKLHunyuanVideo",
         "AutoencoderKLHunyuanVideo15": "AutoencoderKLHunyuanVideo15",
         "AutoencoderKLQwenImage": "AutoencoderKLQwenImage",
         "AutoencoderKLMochi": "AutoencoderKLMochi", "AutoencoderDC": "AutoencoderDC"}
_CLAMPED = ("AutoencoderKLWan", "AutoencoderKLQwenImage")
_PLAIN = ("AutoencoderDC",)     # encoders without a distribution


def _vae_config(part: torch.nn.Module) -> dict[str, Any]:
    """Returns the config without the latents' mean and std: pipelines apply these themselves."""
    config = dict(part.config)
    channels = config.get("z_dim") or config.get("latent_channels")
    config["_class_name"] = _VAES[type(part).__name__]
    if config.get("latents_mean") is not None and config.get("latents_std") is not None:
        lists = "z_dim" in config or "temporal_expansions" in config
        config["latents_mean"] = [0.0] * channels if lists else None
        config["latents_std"] = [1.0] * channels if lists else None
    if "temporal_expansions" in config:     # the library's decoder divides by it
        config["scaling_factor"] = 1.0
    return config


def _frames(value: torch.Tensor) -> torch.Tensor:
    """Reshapes [C,h,w] or [C,T,h,w] to [T,C,h,w]."""
    return value.unsqueeze(0) if value.dim() == 3 else value.transpose(0, 1)


def _unframed(value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Reshapes [T,h,w,C] to [C,h,w] or [C,T,h,w], as `like`."""
    value = value.permute(3, 0, 1, 2)
    return value[:, 0] if like.dim() == 3 else value


def _decode(part: torch.nn.Module, module: Module) -> Callable:
    clamped = type(part).__name__ in _CLAMPED

    @torch.no_grad()
    def decode(z: torch.Tensor, return_dict: bool = True, generator: Any = None) -> Any:
        tiled = bool(getattr(part, "use_tiling", False))
        rows = [_unframed(module.decode(_frames(row), tiled), row) for row in z]
        out = torch.stack(rows).to(z.dtype)
        out = out.clamp(-1, 1) if clamped else out
        if not return_dict:
            return (out,)
        from diffusers.models.autoencoders.vae import DecoderOutput
        return DecoderOutput(sample=out)
    return decode


def _encode(part: torch.nn.Module, module: Module) -> Callable:
    @torch.no_grad()
    def encode(x: torch.Tensor, return_dict: bool = True) -> Any:
        from diffusers.models.autoencoders.vae import (DiagonalGaussianDistribution,
                                                       EncoderOutput)
        from diffusers.models.modeling_outputs import AutoencoderKLOutput
        tiled = bool(getattr(part, "use_tiling", False))
        rows = [_unframed(module.encode(_frames(row).permute(0, 2, 3, 1), tiled), row) for row in x]
        if type(part).__name__ in _PLAIN:
            latent = torch.stack(rows).to(x.dtype).chunk(2, dim=1)[0]
            return EncoderOutput(latent=latent) if return_dict else (latent,)
        posterior = DiagonalGaussianDistribution(torch.stack(rows).to(x.dtype))
        return AutoencoderKLOutput(latent_dist=posterior) if return_dict else (posterior,)
    return encode


# ---- pipelines -----------------------------------------------------------------------------------

class _State:
    """State of an accelerated torch module."""

    def __init__(self, module: Module, released: bool, torch_threads: int):
        self.module, self.released, self.torch_threads = module, released, torch_threads


def _release(part: torch.nn.Module, what: str) -> None:
    """Frees the parameters, but keeps their device and dtype, which pipelines query."""
    for p in part.parameters():
        p.data = torch.empty(0, dtype=p.dtype)
    with contextlib.suppress(OSError, AttributeError):      # glibc: returns pages to the system
        ctypes.CDLL(None).malloc_trim(0)

    def save_pretrained(*args: Any, **kwargs: Any) -> None:
        raise InvalidRequest(_released(what))
    part.save_pretrained = save_pretrained


def _released(what: str) -> str:
    return f"the weights of {what} were released (release=True): load the pipeline again"


def _open(part: torch.nn.Module, what: str, config: dict[str, Any], options: Values) -> None:
    weights = weights_of(part, what)
    types = {v.dtype for v in weights.values()}
    dtype = options["dtype"]
    if dtype is None:           # float16 values are exact in f32
        dtype = "bf16" if types == {torch.bfloat16} else "f32"
    quantized = what != "vae" and options["weights_dtype"] not in (None, "f32", "bf16")
    in_place = not (options["copy"] or options["release"] or quantized or what == "vae")
    module = Module(config, weights, dtype=dtype, in_place=in_place, threads=options["threads"],
                    weights_dtype=options["weights_dtype"] if what != "vae" else None)
    setattr(part, _MINE, _State(module, options["release"], options["torch_threads"]))
    if what == "vae":
        part.decode, part.encode = _decode(part, module), _encode(part, module)
    else:
        part.forward = _forward(part, module, what)
    if options["release"]:
        del weights
        _release(part, what)


def _restore(part: torch.nn.Module) -> None:
    state = part.__dict__.pop(_MINE, None)
    for name in _REPLACED if state else ():
        part.__dict__.pop(name, None)
    if state:
        state.module.close()
        torch.set_num_threads(state.torch_threads)


def _parts(pipe: Any, vae: bool) -> list[tuple[str, torch.nn.Module]]:
    names = (*_TRANSFORMERS, "vae") if vae else _TRANSFORMERS
    found = [(n, getattr(pipe, n, None)) for n in names]
    return [(n, p) for n, p in found if isinstance(p, torch.nn.Module)]


def accelerate(pipe: Any, weights_dtype: str | None = None, vae: bool = True,
               release: bool = False, threads: int = 0, *, dtype: Any = None,
               copy: bool = False) -> Any:
    """Runs the transformers and the autoencoder of a loaded diffusers pipeline with xdit, on the
    CPU; returns the pipeline. The loop over steps, the scheduler and callbacks remain those of
    diffusers.

    weights_dtype: storage type of the transformer's matrices, "int8", "fp8" or "int4"; None: the
    compute type. vae: include the autoencoder. release: free torch's weights after they are copied;
    the pipeline can then not be restored. threads: 0: as many as torch; if torch and the library
    share one OpenMP, torch uses the library's number until restore. dtype: compute type, "f32" or
    "bf16"; None: the type of the weights. copy: copy the matrices into the layout of the kernels,
    which needs their memory twice and makes small images faster; False: read torch's memory.
    """
    from ._pipeline import _dtype
    known = [c for c in classes("transformer") if c in FORWARDS]
    parts = _parts(pipe, vae)
    if not any(name in _TRANSFORMERS for name, _ in parts):
        raise Unsupported(f"{type(pipe).__name__} has no transformer; xdit.accelerate supports "
                          f"pipelines of diffusers with a {', '.join(known)}")
    if any(_MINE in part.__dict__ for _, part in parts):
        raise InvalidRequest("the pipeline is already accelerated: call xdit.restore(pipe) first")
    options = {"weights_dtype": weights_dtype, "release": release, "dtype": _dtype(dtype),
               "threads": threads or torch.get_num_threads(), "copy": copy,
               "torch_threads": torch.get_num_threads()}
    try:
        for name, part in parts:
            _check_part(part, name, [*_VAES] if name == "vae" else known)
        for name, part in parts:
            config = _vae_config(part) if name == "vae" else \
                {**part.config, "_class_name": type(part).__name__}
            _open(part, name, config, options)
    except BaseException:
        for _, part in parts:
            if _MINE in part.__dict__ and not part.__dict__[_MINE].released:
                _restore(part)
        raise
    return pipe


def restore(pipe: Any) -> Any:
    """Undoes accelerate; returns the pipeline."""
    parts = _parts(pipe, True)
    for name, part in parts:
        if _MINE in part.__dict__ and part.__dict__[_MINE].released:
            raise InvalidRequest(_released(name))
    for _, part in parts:
        _restore(part)
    return pipe
