"""Predictions of plans: the time and memory of each distribution of a model over ranks."""
from __future__ import annotations

import dataclasses
from typing import Any

from ._library import Kept, check, ffi, lib, lock, new_error, options, record, set_option, text


@dataclasses.dataclass(frozen=True)
class Plan:
    """One plan. Times are in seconds; they are None if the plan was refused before prediction."""
    name: str                   # "u2cfg2", for Pipeline.from_pretrained(plan=...)
    flags: str                  # command-line options; "": one rank
    text: str                   # "cfg 2 x ulysses 2"
    ranks: int
    same_image: bool            # True: generates the image of one rank
    refused: str | None         # why it is impossible; None: possible
    total: float | None         # the complete request
    step: float | None          # a denoising step
    encode: float | None        # text encoding
    decode: float | None        # decoding one image
    load: float | None          # waiting for weights before the first step
    peak: int | None            # peak bytes of the fullest GPU or host
    sent: int | None            # bytes that all ranks send


class Plans(list[Plan]):
    """Plans: possible ones, fastest first, then refused ones. `model`, `machine`, `ranks`,
    `dtype` and `weights_dtype` are those of the prediction."""
    model: str | None = None
    machine: str | None = None
    ranks: int = 0
    dtype: str | None = None
    weights_dtype: str | None = None


def _plan(p: Any) -> Plan:
    known = bool(p.predicted)

    def seconds(v: float) -> float | None:
        return v if known else None
    return Plan(name=text(p.name), flags=text(p.flags), text=text(p.text), ranks=p.ranks,
                same_image=bool(p.same_image), refused=text(p.refused),
                total=seconds(p.request_s), step=seconds(p.step_s), encode=seconds(p.text_s),
                decode=seconds(p.decode_s), load=seconds(p.load_s),
                peak=int(p.peak) if known else None, sent=int(p.sent) if known else None)


def plan(model: Any, *, ranks: int = 0, cluster: str | None = None, dtype: str | None = None,
         weights_dtype: str | None = None, text_weights_dtype: str | None = None,
         device: str | None = None, offload: str | None = None, memory: int = 0,
         exact: bool = False, controlnet: Any = None, latent_upsampler: Any = None,
         redux: Any = None, **request: Any) -> Plans:
    """Predicts all plans of a model for a request on this machine or on a `cluster` ("8xH100", or
    a file of `xdit probe`). `request` contains options of a pipeline's call, such as width and
    num_inference_steps, and fixed degrees, such as ulysses_degree. controlnet: the directory of a
    control network, or a list of them. latent_upsampler: the directory of a network that enlarges
    latents. redux: the directory of a prior that varies images. Loads no weights: configs are
    enough."""
    kept, r, a = Kept(), record("xd_request"), record("xd_advise_args")
    known, degrees = options("xd_request_options"), options("xd_parallel_options")
    for name, value in request.items():
        if name in known:
            set_option(r, known[name], value, kept)
        elif name in degrees:
            set_option(ffi.addressof(a.parallel), degrees[name], value, kept)
        else:
            raise TypeError(f"plan() got an unexpected keyword argument {name!r}")
    a.model, a.cluster, a.dtype = kept.text(model), kept.text(cluster), kept.text(dtype)
    a.weights_dtype = kept.text(weights_dtype)
    a.text_weights_dtype = kept.text(text_weights_dtype)
    a.device, a.offload = kept.text(device), kept.text(offload)
    sides = list(controlnet) if isinstance(controlnet, (list, tuple)) else \
        [controlnet] if controlnet is not None else []
    a.controlnets, a.ncontrolnets = kept.texts(sides), len(sides)
    a.latent_upsampler = kept.text(latent_upsampler)
    a.redux = kept.text(redux)
    a.request, a.ranks, a.exact, a.memory = r, ranks, exact, memory
    out, e = ffi.new("xd_plans **"), new_error()
    with lock:
        check(lib.xd_plans_predict(out, a, e), e)
        info = lib.xd_plans_about(out[0])
        plans = Plans(_plan(lib.xd_plans_get(out[0], i)) for i in range(info.count))
        plans.model, plans.machine = text(info.model), text(info.cluster)
        plans.ranks = info.ranks
        plans.dtype, plans.weights_dtype = text(info.dtype), text(info.weights_dtype)
        lib.xd_plans_free(out)
    return plans
