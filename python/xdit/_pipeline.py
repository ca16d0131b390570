"""Pipelines: a model is opened once and called for each request."""
from __future__ import annotations

import dataclasses
import json
import numbers
import os
import warnings
from typing import Any, Callable

import numpy as np

from . import _pixels
from ._errors import InvalidRequest, describe, of_another_rank
from ._library import (Kept, check, ffi, interruptible, join_ranks, lib, lock, new_error, options,
                       record, set_option, text)
from ._plan import Plan

_PARTS = ("text", "load", "denoise", "decode", "total", "first_step")
_IMAGES = ("image", "mask_image", "last_image", "control_image", "control_video", "pose_video",
           "face_video", "redux_image")
# diffusers' names of the inputs of models that read a control video, or have control networks
_OTHER_NAMES = {"video": "control_video", "mask": "mask_image", "control_mask": "mask_image",
                "background_video": "control_video", "mask_video": "mask_image",
                "reference_images": "image",
                "controlnet_conditioning_scale": "conditioning_scale"}
_MORE_TEXTS = ("prompt_2", "prompt_3", "negative_prompt_2", "negative_prompt_3")
_UNITS = {"": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
          "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


@dataclasses.dataclass
class Output:
    """Result of a call; empty on ranks above 0.

    Image models: `images` is a list of PIL images, an array [B,H,W,3] of 0 to 1 ("np") or of levels
    0 to 255 ("uint8"), a tensor [B,3,H,W] ("pt"), or latents [B,C,H,W] ("latent"). Images with
    alpha have the mode RGBA, and 4 channels. A model of layers has a list of PIL images for each
    image, or a dimension of layers after B. Video models: `frames` is a list of PIL images per
    video, or such an array with a dimension of frames after B; `audio` has an array
    [samples,channels] per video with sound, from -1 to 1, of `audio_rate` samples per second.
    """
    images: Any = None
    frames: Any = None
    audio: Any = None
    audio_rate: int | None = None
    seeds: list[int] = dataclasses.field(default_factory=list)
    parameters: list[dict] = dataclasses.field(default_factory=list)    # as in saved files
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    # For each image: the library's result, and the index in it.
    _results: list[tuple[Any, int]] = dataclasses.field(default_factory=list, repr=False)

    @property
    def videos(self) -> Any:
        """`frames`, by the name of xDiT's runner."""
        return self.frames

    def save(self, path: Any, index: int = 0) -> None:
        """Writes one image or video with its parameters; the extension selects the format."""
        if not self._results:
            raise InvalidRequest("there is no result to save: call save on rank 0")
        if not 0 <= index < len(self._results):
            raise InvalidRequest(f"index is {index}; it must be from 0 to {len(self._results) - 1}")
        result, at = self._results[index]
        e, kept = new_error(), Kept()
        with lock:
            check(lib.xd_result_save(result[0], at, kept.text(path), e), e)


def _bytes(v: Any) -> int:
    """Converts "12GB", or a number, to bytes."""
    if not isinstance(v, str):
        return int(v)
    number = v.strip().rstrip("BKMGTIbkmgti")
    unit = v.strip()[len(number):].upper()
    unit = unit + "B" if unit and not unit.endswith("B") else "" if unit == "B" else unit
    try:
        return int(float(number) * _UNITS[unit])
    except (KeyError, ValueError):
        raise InvalidRequest(f"{v!r} is not a size: pass a number of bytes, or '12GB'") from None


def _dtype(v: Any) -> str | None:
    """Converts torch.bfloat16, "bfloat16" or "bf16" to the name of the library, "bf16"."""
    names = {"bfloat16": "bf16", "float32": "f32", "float": "f32", "float16": "f16", "half": "f16",
             "auto": None}
    name = None if v is None else str(v).rsplit(".", 1)[-1]
    return names.get(name, name)


def _seed(generator: Any) -> Any:
    """Returns the seed: a number, or that of a torch.Generator; for a list, a list of seeds."""
    if isinstance(generator, (list, tuple)):
        return [_seed(g) for g in generator]
    if generator is None or isinstance(generator, numbers.Integral):
        return None if generator is None else int(generator)
    return int(generator.initial_seed())


def _join(parts: list[Output]) -> Output:
    """Joins the results of several calls."""
    if len(parts) == 1:
        return parts[0]
    out = Output()
    out.audio_rate = parts[0].audio_rate
    for field in ("images", "frames", "audio"):
        values = [getattr(p, field) for p in parts if getattr(p, field) is not None]
        whole = [v for part in values for v in part] if values else None
        if values and len(values[0]) and not isinstance(values[0], list):
            whole = _pixels.concatenate(values)
        setattr(out, field, whole)
    for p in parts:
        out.seeds += p.seeds
        out.parameters += p.parameters
        out._results += p._results
        for name, s in p.seconds.items():
            out.seconds[name] = out.seconds.get(name, 0) + (s if name != "first_step" else 0)
    out.seconds.update({k: s for k, s in parts[0].seconds.items() if k == "first_step"})
    return out


class _Call:
    """A running request: its callbacks and the first exception in them."""

    def __init__(self, pipe: "Pipeline", kept: Kept):
        self.pipe, self.kept = pipe, kept
        self.request = record("xd_request")
        self.failure: BaseException | None = None
        self.latents: np.ndarray | None = None      # of the current step
        self.results: list[np.ndarray] = []         # of finished images
        self.bar: Any = None

    def callback(self, field: str, function: Callable) -> None:
        """Sets a callback of the request. An exception in it cancels the request."""
        def failed(kind, value, trace):
            self.failure = self.failure or value
            lib.xd_cancel_because(self.pipe._engine[0], self.kept.text(describe(value)))
        calls = self.request.callbacks
        kind = ffi.typeof(getattr(calls, field))
        setattr(calls, field,
                self.kept.keep(ffi.callback(kind, function, onerror=failed)))

    def show_progress(self) -> None:
        if self.pipe._bar_config.get("disable"):
            return
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return
        self._tqdm = tqdm

    def on_step(self, _, p) -> None:
        tqdm = getattr(self, "_tqdm", None)
        if tqdm and (self.bar is None or p.step == 1):
            self.close_bar()
            more = {"desc": f"image {p.image}/{p.images}"} if p.images > 1 else {}
            self.bar = tqdm(total=p.steps, **{**more, **self.pipe._bar_config})
        if self.bar is not None:
            self.bar.update(p.step - self.bar.n)
            if p.step == p.steps:
                self.close_bar()
        if self.at_end and not self.hands_latents:
            self.call_at_end(p, {})

    def call_at_end(self, p, values: dict) -> Any:
        changed = self.at_end(self.pipe, p.step - 1, p.timestep, values)
        if self.pipe._interrupt:
            lib.xd_cancel(self.pipe._engine[0])
        return changed

    def on_latents(self, _, p, nd, d, data) -> int:
        """Passes latents to the callback; those that it returns replace them."""
        shape = tuple(d[i] for i in range(nd))
        here = np.frombuffer(ffi.buffer(data, 4 * int(np.prod(shape))), np.float32).reshape(shape)
        mine = here.copy()
        values = self.call_at_end(p, {"latents": mine})
        new = values.get("latents") if isinstance(values, dict) else None
        if new is None or (new is mine and np.array_equal(new, here)):
            return 0
        new = new.detach().cpu().float().numpy() if hasattr(new, "detach") else np.asarray(new)
        if new.shape not in (shape, (1, *shape)):
            raise InvalidRequest(f"the callback returned latents of shape "
                                 f"{list(new.shape)}; it must be {list(shape)}")
        here[...] = new.reshape(shape)
        if self.latents is not None:
            self.latents = here.copy()
        return 1

    def on_tensor(self, _, name, step, nd, d, data) -> None:
        if text(name) == "latents":
            shape = tuple(d[i] for i in range(nd))
            raw = ffi.buffer(data, 4 * int(np.prod(shape)))
            self.latents = np.frombuffer(raw, np.float32).reshape(shape).copy()

    def on_image(self, _, partial, i, e) -> int:
        if self.latents is not None:
            self.results.append(self.latents)
        return lib.XD_OK

    at_end: Callable | None = None
    hands_latents = False

    def close_bar(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None


class Pipeline:
    """A model of images or videos, opened by from_pretrained, closed by close() or `with`."""

    def __init__(self, engine: Any, model: str, kept: Kept):
        self._engine, self._kept = engine, kept
        self._loras: list[tuple[str, float]] = []
        self._own_loras: list[tuple[str, float]] = []   # LoRA files of from_pretrained
        self._changes_loras = False     # a call has used others
        self._bar_config: dict[str, Any] = {}
        self._interrupt = False
        self.model = model
        self.rank = lib.xd_rank(engine[0])
        self.ranks = lib.xd_ranks(engine[0])
        self.makes_videos = bool(lib.xd_makes_videos(engine[0]))

    @classmethod
    def from_pretrained(cls, model: Any, *, dtype: Any = None, torch_dtype: Any = None,
                        weights_dtype: str | None = None, text_weights_dtype: str | None = None,
                        plan: Any = None, device: str | None = None, threads: int = 0,
                        memory: Any = 0, offload: str | None = None, fit: str | None = None,
                        files: dict[str, Any] | None = None, controlnet: Any = None,
                        latent_upsampler: Any = None, redux: Any = None, upscale: Any = None,
                        loras: Any = (), loras_2: Any = (),
                        lora_partial: bool = False, verify_weights: bool = False,
                        without: str | None = None, keep: bool = True, bind: str | None = None,
                        cluster: str | None = None, balance: str | None = None,
                        preview_decoder: Any = None, trace: Any = None, comm: Any = None,
                        log: Callable[[int, str], None] | None = None,
                        **degrees: Any) -> "Pipeline":
        """Opens a model: a directory in the layout of diffusers, or org/name in the local Hugging
        Face cache. Weights are loaded by the first call.

        dtype: compute type, "f32", "bf16", "f16", or a dtype of torch. weights_dtype: storage type,
        as --weights_dtype of the command line. plan: "auto", a name such as "u2cfg2", or a Plan;
        `degrees` are its parts (ulysses_degree=2, use_cfg_parallel=True). files: {"transformer":
        path} replaces the weights of a component by a safetensors or GGUF file. controlnet: the
        directory of a control network, or a list of them. latent_upsampler: the directory of a
        network that enlarges latents. redux: the directory of a prior that varies images. upscale:
        the file of an upscaler that enlarges results. loras: paths, or (path, scale). lora_partial:
        skip tensors of LoRA files that do not match the model, with a warning. verify_weights:
        ranks compare all bytes of their weight files.
        memory: limit in bytes, or "12GB". comm: a communicator of mpi4py. log: called with a level
        (0 error to 3 debug) and a line; by default warnings become Python's warnings.
        """
        kept, a, e = Kept(), record("xd_open_args"), new_error()
        rows = options("xd_parallel_options")
        for name, value in degrees.items():
            if name not in rows:
                raise TypeError(f"from_pretrained() got an unexpected keyword argument {name!r}")
            set_option(ffi.addressof(a.parallel), rows[name], value, kept)
        if isinstance(plan, Plan):
            plan = plan.name
        if plan and not str(plan).startswith("auto"):
            check(lib.xd_parallel_read(ffi.addressof(a.parallel), kept.text(plan), e), e)
            plan = None
        a.model, a.plan = kept.text(model), kept.text(plan)
        a.dtype = kept.text(_dtype(dtype if dtype is not None else torch_dtype))
        a.weights_dtype = kept.text(weights_dtype)
        a.text_weights_dtype = kept.text(text_weights_dtype)
        a.device, a.threads, a.keep = kept.text(device), threads, bool(keep)
        a.memory, a.offload, a.fit = _bytes(memory), kept.text(offload), kept.text(fit)
        a.without, a.bind, a.cluster = kept.text(without), kept.text(bind), kept.text(cluster)
        a.balance, a.trace = kept.text(balance), kept.text(trace)
        a.preview_decoder = kept.text(preview_decoder)
        a.upscale = kept.text(upscale)
        given = [(k, v) for k, v in (files or {}).items()]
        given += [("controlnet", v) for v in ([controlnet] if _pixels.is_path(controlnet) else
                                              controlnet or [])]
        given += [("latent_upsampler", latent_upsampler)] if latent_upsampler is not None else []
        given += [("redux", redux)] if redux is not None else []
        rows = kept.keep(ffi.new("xd_component_file[]", len(given)))
        for row, (component, path) in zip(rows, given):
            row.component, row.path = kept.text(component), kept.text(path)
        a.files, a.nfiles = rows, len(rows)
        a.loras, a.nloras = _lora_rows(loras, kept)
        a.loras_2, a.nloras_2 = _lora_rows(loras_2, kept)
        a.lora_partial, a.verify_weights = bool(lora_partial), bool(verify_weights)
        if comm is not None:
            from mpi4py import MPI
            a.mpi_comm = ffi.cast("void *", MPI._addressof(comm))

        @ffi.callback("void(void *, int, const char *)")
        def write(_, level, line):
            if log:
                log(level, text(line))
            elif level <= lib.XD_LOG_WARN:
                warnings.warn(text(line), stacklevel=2)
        a.log, a.log_level = kept.keep(write), lib.XD_LOG_INFO if log else lib.XD_LOG_WARN
        engine = ffi.new("xd_engine **")
        with lock:
            if comm is None:
                join_ranks()
            check(lib.xd_open(engine, a, e), e)
        pipe = cls(engine, os.fspath(model), kept)
        pipe._own_loras = list(loras)
        return pipe

    def close(self) -> None:
        """Frees the weights. The pipeline can not be called afterwards."""
        if self._engine is not None:
            with lock:
                lib.xd_close(self._engine)
            self._engine = None

    def __enter__(self) -> "Pipeline":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_engine", None) is not None and lib is not None:
            def close(engine=self._engine, kept=self._kept, end=lib.xd_close):
                end(engine)             # may log: `kept` owns the callback
            lock.close(close)

    # ---- settings of diffusers' pipelines

    def set_progress_bar_config(self, **config: Any) -> None:
        """Arguments of tqdm; disable=True: no progress bar."""
        self._bar_config = config

    def to(self, device: Any) -> "Pipeline":
        """Accepts "cpu" only: a pipeline can not move to another device."""
        if str(device) != "cpu":
            raise InvalidRequest("a pipeline can not move to another device: open it with "
                                 "Pipeline.from_pretrained(..., device='cuda')")
        return self

    def load_lora_weights(self, path: Any, weight_name: str | None = None,
                          scale: float = 1.0) -> None:
        """Adds a LoRA file to later calls."""
        file = os.path.join(path, weight_name) if weight_name else os.fspath(path)
        self._loras.append((file, scale))

    def unload_lora_weights(self) -> None:
        """Removes the files of load_lora_weights from later calls."""
        self._loras = []

    def cancel(self) -> None:
        """Cancels the running call, which soon raises Cancelled. Callable from any thread."""
        if self._engine is not None:
            lib.xd_cancel(self._engine[0])

    # ---- a request

    def __call__(self, prompt: Any = None, negative_prompt: Any = None, *,
                 image: Any = None, mask_image: Any = None, last_image: Any = None,
                 control_image: Any = None, control_video: Any = None, conditions: Any = None,
                 pose_video: Any = None, face_video: Any = None, redux_image: Any = None,
                 generator: Any = None, seed: int | None = None,
                 num_images_per_prompt: int = 1,
                 num_videos_per_prompt: int | None = None, latents: Any = None,
                 output_type: str = "pil", return_dict: bool = True,
                 callback_on_step_end: Callable | None = None,
                 callback_on_step_end_tensor_inputs: Any = ("latents",),
                 on_preview: Callable[[Any, int, int], None] | None = None,
                 **more: Any) -> Any:
        """Generates. Options have the names of diffusers and of the command line, such as height,
        width, num_inference_steps, guidance_scale, num_frames, strength, max_sequence_length.

        generator: a seed, or a torch.Generator whose initial seed is used; image i has seed + i. Or
        a list with one per image. latents: noise in place of the generator's, [B,C,h,w], for videos
        [B,T,C,h,w], or the path of a file (--latents). negative_prompt, prompt_2, prompt_3,
        negative_prompt_2 and _3: a text, or a list with one per prompt. image: a PIL image, an
        array, a path, or a list of them for models that read several. control_image: likewise, or a
        list with one for each control network. redux_image: the image that a prior varies, or a
        list of them; the prompt may be missing. control_video: a path, an array, or a list of
        frames; mask_image of such a video likewise. pose_video, face_video: likewise, the videos
        that drive the character of `image`. conditions: images and videos at frames of the result,
        a list of dicts, or of objects such as diffusers' LTXVideoCondition, with `image` or
        `video`, `frame_index` (0) and `strength` (1), or as LTX2VideoCondition, with `frames`,
        `index` and `strength`. diffusers' names video, background_video, mask, mask_video and
        reference_images stand for control_video, mask_image and image. output_type: "pil", "np",
        "uint8", "pt" or "latent". callback_on_step_end(pipe, step, timestep, values) is called
        after every step; `values` has "latents" if callback_on_step_end_tensor_inputs names it. If
        it returns a dict with "latents", the next step uses them. An exception in it, or
        pipe._interrupt = True, stops the call. on_preview(image, step, steps) gets a small PIL
        image after every step.
        """
        if any(name != "latents" for name in callback_on_step_end_tensor_inputs or ()):
            raise InvalidRequest("callback_on_step_end_tensor_inputs may only contain latents, not "
                                 f"{', '.join(callback_on_step_end_tensor_inputs)}")
        prompt = "" if prompt is None and redux_image is not None else prompt
        prompts = [prompt] if isinstance(prompt, str) else list(prompt or [])
        each = num_videos_per_prompt or num_images_per_prompt
        texts = {"negative_prompt": negative_prompt,
                 **{name: more.pop(name) for name in _MORE_TEXTS if name in more}}
        how = {"image": image, "mask_image": mask_image, "last_image": last_image,
               "control_image": control_image, "control_video": control_video,
               "pose_video": pose_video, "face_video": face_video,
               "redux_image": redux_image, "output_type": output_type,
               "callback_on_step_end": callback_on_step_end,
               "callback_on_step_end_tensor_inputs": callback_on_step_end_tensor_inputs,
               "on_preview": on_preview, **more}
        if conditions is not None:
            _set_conditions(how, conditions)
        for name, own in _OTHER_NAMES.items():
            if name in how:
                if how.get(own) is not None:
                    raise InvalidRequest(f"{name} and {own} are given; use one of them")
                how[own] = how.pop(name)
        runs = _runs(prompts, texts, _seed(generator) if seed is None else seed, each)
        if isinstance(latents, (str, os.PathLike)):
            if len(runs) > 1:
                raise InvalidRequest("a file of latents is for one generator, not a list of them")
            how["latents"], latents = os.fspath(latents), None
        if latents is not None:
            latents = self._read_latents(latents)
            if len(latents) != sum(len(run[0]) * run[3] for run in runs):
                raise InvalidRequest(f"there are latents for {len(latents)} images, and the call "
                                     f"generates {sum(len(run[0]) * run[3] for run in runs)}")
        outs, at = [], 0
        for run in runs:
            n = len(run[0]) * run[3]
            outs.append(self._call(*run, **how, noise=None if latents is None
                                   else latents[at:at + n]))
            at += n
        out = _join(outs)
        return out if return_dict else (out.frames if self.makes_videos else out.images,)

    def _read_latents(self, latents: Any) -> np.ndarray:
        """Converts latents to [B,C,h,w], for videos and layers [B,T,C,h,w]; B may be missing,
        except for layers."""
        a = latents.detach().cpu().float().numpy() if hasattr(latents, "detach") else latents
        a = np.ascontiguousarray(a, np.float32)
        nd = 4 if self.makes_videos or a.ndim == 5 else 3
        if a.ndim not in (nd, nd + 1):
            raise InvalidRequest(f"latents must have {nd + 1} dimensions, or {nd} without a batch, "
                                 f"not {list(a.shape)}")
        return a[None] if a.ndim == nd else a

    def decode(self, latents: Any, *, prompt: str = "", negative_prompt: str | None = None,
               generator: Any = None, seed: int | None = None, output_type: str = "pil",
               return_dict: bool = True, **more: Any) -> Any:
        """Decodes latents of output_type="latent" or of a callback, [B,C,h,w] (videos [B,T,C,h,w])
        or without B, to images or videos. Loads only the autoencoder.

        The other arguments are those of the call that generated the latents: width and height are
        needed if it resized its image; the others are stored in saved files.
        """
        a = self._read_latents(latents)
        if output_type == "latent":
            raise InvalidRequest("output_type must be pil, np, uint8 or pt")
        texts = {"negative_prompt": negative_prompt}
        first = _seed(generator) if seed is None else seed
        if isinstance(first, list) and len(first) != len(a):
            raise InvalidRequest(f"there are {len(first)} generators for {len(a)} images")
        made = []
        for i, one in enumerate(a):
            own = first[i] if isinstance(first, list) else \
                None if first is None else max(first, 0) + i
            call = self._new_call(prompt, texts, own, output_type, more)
            shape = one.shape if one.ndim == 4 else (1, *one.shape)
            values = call.kept.keep(ffi.from_buffer("float[]", call.kept.keep(one)))
            made.append(self._take(call, lambda result, e: lib.xd_decode(
                self._engine[0], call.request, values, shape, result, e)))
        out = _join(made)
        return out if return_dict else (out.frames if self.makes_videos else out.images,)

    def _new_call(self, prompt: Any, texts: dict[str, Any], seed: int | None,
                  output_type: str, more: dict[str, Any]) -> _Call:
        if self._engine is None:
            raise InvalidRequest("the pipeline is closed")
        if output_type not in ("pil", "np", "uint8", "pt", "latent"):
            raise InvalidRequest(f"output_type is {output_type!r}; it must be one of pil, np, "
                                 "uint8, pt, latent")
        kept = Kept()
        call = _Call(self, kept)
        call.output_type = output_type
        r = call.request
        rows = options("xd_request_options")
        prompts = [prompt] if isinstance(prompt, str) else list(prompt)
        r.prompts, r.nprompts = kept.texts(prompts), len(prompts)
        for name, value in texts.items():
            each = list(value) if isinstance(value, (list, tuple)) else [value]
            if len(set(each)) <= 1:
                set_option(r, rows[name], each[0] if each else None, kept)
                continue
            several = getattr(r.texts, name.replace("prompt", "prompts"))
            several.v, several.n = kept.texts(each), len(each)
        if seed is not None and seed < 0:
            r.random_seed = 1
        elif seed is not None:
            r.seed = seed - 2**64 if seed >= 2**63 else seed
        for name, value in more.items():
            if name not in rows or name == "seed" or name in _IMAGES:
                raise TypeError(f"Pipeline got an unexpected keyword argument {name!r}")
            if value is not None:
                set_option(r, rows[name], value, kept)
        return call

    def _call(self, prompts: list[str], texts: dict[str, Any], seed: int | None, each: int,
              image: Any, mask_image: Any, last_image: Any, control_image: Any,
              control_video: Any, pose_video: Any, face_video: Any, redux_image: Any,
              output_type: str,
              callback_on_step_end: Callable | None, callback_on_step_end_tensor_inputs: Any,
              on_preview: Callable | None, noise: np.ndarray | None, **more: Any) -> Output:
        """Runs one request of the library. noise: [images,T,C,h,w] or [images,C,h,w]."""
        call = self._new_call(prompts, texts, seed, output_type, more)
        r = call.request
        r.num_images_per_prompt = each
        if noise is not None:
            r.noise.values = call.kept.keep(ffi.from_buffer("float[]", call.kept.keep(noise)))
            r.noise.count = noise.size
        _set_images(r, image, (mask_image, last_image, control_image, control_video), call.kept)
        _set_driving(r.driving, {"pose": pose_video, "face": face_video}, call.kept)
        _set_redux(r.redux, redux_image, call.kept)
        r.output.latents_only = output_type == "latent"
        self._set_callbacks(call, callback_on_step_end, callback_on_step_end_tensor_inputs,
                            on_preview, output_type)
        return self._run(call)

    def _set_callbacks(self, call: _Call, at_end: Callable | None, tensors: Any,
                       on_preview: Callable | None, output_type: str) -> None:
        self._interrupt = False
        call.at_end = at_end
        call.show_progress()
        call.callback("on_step", call.on_step)
        call.callback("on_image", call.on_image)
        if output_type == "latent":
            call.callback("on_tensor", call.on_tensor)
        if at_end and "latents" in (tensors or ()):
            call.hands_latents = True
            call.callback("on_latents", call.on_latents)
        if on_preview:
            from PIL import Image

            def preview(_, im, p):
                on_preview(Image.fromarray(_pixels.to_numpy(im)[0]), p.step - 1, p.steps)
            call.request.previews.every = 1
            call.callback("on_preview", preview)

    def _run(self, call: _Call) -> Output:
        def generate(result, e):
            # After one call with LoRA files, every later call must select its files, even none.
            self._changes_loras |= bool(self._loras)
            if not self._changes_loras:
                return lib.xd_generate(self._engine[0], call.request, result, e)
            rows, n = _lora_rows([*self._own_loras, *self._loras], call.kept)
            check(lib.xd_use_loras(self._engine[0], rows, n, e), e)
            try:
                return lib.xd_generate(self._engine[0], call.request, result, e)
            finally:
                lib.xd_leave_loras(self._engine[0])
        try:
            return self._take(call, generate)
        finally:
            call.close_bar()

    def _take(self, call: _Call, run: Callable[[Any, Any], int]) -> Output:
        """Runs a function of the library that returns a result."""
        result, e = ffi.new("xd_result **"), new_error()
        with lock, interruptible(lambda: lib.xd_cancel(self._engine[0])):
            status = run(result, e)
        result = ffi.gc(result, lib.xd_result_free)
        if call.failure is not None:
            raise call.failure
        if status == lib.XD_ECANCELLED:
            raise of_another_rank(text(e.msg), e.rank)
        check(status, e)
        return self._output(call, result)

    def _output(self, call: _Call, result: Any) -> Output:
        r = result[0]
        n = lib.xd_result_count(r) if r != ffi.NULL and self.rank == 0 else 0
        out = Output(_results=[(result, i) for i in range(n)])
        parts = {p: lib.xd_result_seconds(r, p.encode()) for p in _PARTS if n}
        out.seconds = {p: s for p, s in parts.items() if s >= 0}
        out.seeds = [lib.xd_result_seed(r, i) % 2**64 for i in range(n)]
        out.parameters = [json.loads(text(lib.xd_result_json(r, i))) for i in range(n)]
        size = ffi.new("xd_audio_size *")
        sounds = [_pixels.sound_to_numpy(v, size) for i in range(n)
                  if (v := lib.xd_result_audio(r, i, size)) != ffi.NULL]
        if sounds:
            out.audio, out.audio_rate = sounds, size.rate
        if call.output_type == "latent":
            values = np.stack(call.results) if call.results else []
        else:
            films = [_pixels.to_numpy(im) for i in range(n)
                     if (im := lib.xd_result_image(r, i)) != ffi.NULL]
            layered = any("layers" in p for p in out.parameters)
            values = _as_type(films if self.makes_videos or layered else [f[0] for f in films],
                              call.output_type)
        out.frames, out.images = (values, None) if self.makes_videos else (None, values)
        return out


def _each(name: str, value: Any, prompts: int) -> list[str | None]:
    """Expands a text, or a list of texts, to one per prompt."""
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if len(set(values)) <= 1:
        return (values or [None])[:1] * prompts
    if len(values) != prompts:
        raise InvalidRequest(f"there are {len(values)} texts in {name} for {prompts} prompts")
    return values


def _runs(prompts: list[str], texts: dict[str, Any], seed: Any, each: int) \
        -> list[tuple[list[str], dict[str, Any], int | None, int]]:
    """Splits a call into requests (prompts, texts, seed, images per prompt): a single one if the
    seeds are consecutive, else one per image."""
    lists = {name: _each(name, value, len(prompts)) for name, value in texts.items()}
    own = [dict(zip(lists, values)) for values in zip(*lists.values())] if prompts else [texts]
    n = len(prompts) * each
    seeds = seed if isinstance(seed, list) else None
    if seeds is not None and len(seeds) not in (1, n):
        raise InvalidRequest(f"there are {len(seeds)} generators for {n} images")
    first = seeds[0] if seeds else None if seeds is not None else seed
    counted = seeds is None or len(seeds) == 1 or \
        all(s is not None and s == (first + i) % 2**64 for i, s in enumerate(seeds))
    if counted:
        return [(prompts, lists, first, each)]
    return [([prompts[i // each]], own[i // each], seeds[i], 1) for i in range(n)]


def _lora_rows(loras: Any, kept: Kept) -> tuple[Any, int]:
    pairs = [(v, 1.0) if _pixels.is_path(v) else v for v in loras]
    rows = kept.keep(ffi.new("xd_lora[]", len(pairs)))
    for row, (path, scale) in zip(rows, pairs):
        row.path, row.scale = kept.text(path), scale
    return rows, len(pairs)


def _set_conditions(how: dict[str, Any], conditions: Any) -> None:
    """Replaces images and videos at frames of the result by the options that stand for them."""
    for name in ("image", "frame_index", "condition_strength"):
        if how.get(name) is not None:
            raise InvalidRequest(f"conditions and {name} are given; use one of them")
    if not isinstance(conditions, (list, tuple)):
        conditions = [conditions]
    images, indices, strengths, last = [], [], [], []
    for i, c in enumerate(conditions):
        image, video, index, strength, frames, latent = (
            c.get(name) if isinstance(c, dict) else getattr(c, name, None)
            for name in ("image", "video", "frame_index", "strength", "frames", "index"))
        if image is None and video is None:
            image = frames
        if index is None and latent is not None:
            # index of a latent frame, of which those after the first stand for eight frames
            index = max(0, 8 * latent - 7)
        if latent == -1 and index == 0:
            if last or how.get("last_image") is not None:
                raise InvalidRequest(f"condition {i + 1} is another last image; give one")
            how["last_image"] = image
            last.append(1 if strength is None else strength)
            continue
        if latent is not None and latent < 0:
            raise InvalidRequest(f"condition {i + 1} has index {latent}; only -1, the last one, is "
                                 "counted from the end: give a positive index")
        if (image is None) == (video is None):
            raise InvalidRequest(f"condition {i + 1} has {'no' if image is None else 'both an'} "
                                 f"image {'or' if image is None else 'and a'} video; give one")
        images.append(video if image is None else image)
        indices.append(index or 0)
        strengths.append(1 if strength is None else strength)
    if images:
        how.update(image=images, frame_index=indices)
    if images or last:
        how["condition_strength"] = strengths + last


def _set_images(r: Any, image: Any, others: tuple, kept: Kept) -> None:
    """Sets the images of a request: paths as they are, others as pixels. others: those of _IMAGES
    after the first."""
    first, *behind = image if isinstance(image, (list, tuple)) else [image]
    mask, last, control, video = others
    control, *more_controls = control if isinstance(control, (list, tuple)) else [control]
    others = mask, last, control, video
    for name, value in zip(_IMAGES, (first, *others)):
        if value is None:
            continue
        if _pixels.is_path(value):
            setattr(r.images, name, kept.text(value))
        else:
            pixels = {"image": "image_pixels", "control_video": "control_frames"}.get(
                name, name.replace("_image", "_pixels"))
            setattr(r.images, pixels, _pixels.to_c(value, kept))
    r = r.images
    if more_controls:
        r.nmore_control_images = len(more_controls)
        r.more_control_images, r.more_control_pixels = _image_list(more_controls, kept)
    if behind:
        r.nmore_images = len(behind)
        r.more_images, r.more_pixels = _image_list(behind, kept)


def _set_driving(r: Any, videos: dict[str, Any], kept: Kept) -> None:
    """Sets the videos that drive a character."""
    for name, value in videos.items():
        if value is not None and _pixels.is_path(value):
            setattr(r, name + "_video", kept.text(value))
        elif value is not None:
            setattr(r, name + "_frames", _pixels.to_c(value, kept))


def _set_redux(r: Any, image: Any, kept: Kept) -> None:
    """Sets the images that a prior varies."""
    first, *behind = image if isinstance(image, (list, tuple)) else [image]
    if _pixels.is_path(first):
        r.image = kept.text(first)
    elif first is not None:
        r.image_pixels = _pixels.to_c(first, kept)
    if behind:
        r.nmore_images = len(behind)
        r.more_images, r.more_pixels = _image_list(behind, kept)


def _image_list(images: list, kept: Kept) -> tuple[Any, Any]:
    """Arrays of the paths and of the pixels of images, of which each image has one."""
    return (kept.texts([v if _pixels.is_path(v) else None for v in images]),
            kept.keep(ffi.new("const xd_image *[]", [
                ffi.NULL if _pixels.is_path(v) else _pixels.to_c(v, kept) for v in images])))


def _as_type(films: list[np.ndarray], kind: str) -> Any:
    """Converts images [H,W,C] or videos and layers [F,H,W,C] of levels to an output type."""
    if kind == "pil":
        from PIL import Image
        return [[Image.fromarray(f) for f in film] if film.ndim == 4 else Image.fromarray(film)
                for film in films]
    if not films:
        return []
    levels = np.stack(films)
    if kind == "uint8":
        return levels
    values = levels.astype(np.float32) / 255
    if kind == "np":
        return values
    import torch
    return torch.from_numpy(np.moveaxis(values, -1, -3).copy())
