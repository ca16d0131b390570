"""Converts the arguments of diffusers' transformer classes to inputs of the library.

For each class a function splits the arguments of `forward` into one pass per row of the batch, with
the inputs of Module.run. Unsupported arguments are refused.
"""
from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, Iterator

import torch

from ._errors import InvalidRequest, Unsupported

Values = dict[str, Any]         # arguments of a forward by name
Passes = Iterator[Values]       # inputs of Module.run for each row of the batch


@dataclasses.dataclass(frozen=True)
class Forward:
    """passes(arguments, config): yields the inputs of each row. join(arguments, predictions,
    config): returns the result of the forward. rows: arguments with one row per sample.
    unused: unsupported arguments, which must be None or empty."""
    passes: Callable[[Values, Any], Passes]
    join: Callable[[Values, list[torch.Tensor], Any], Any]
    rows: tuple[str, ...]
    unused: tuple[str, ...]


# ---- parts of arguments --------------------------------------------------------------------------

def _row(value: Any, b: int, scale: float = 1.0) -> float:
    """Returns the number of row b from a number, or a tensor of one number or of one per row."""
    if not torch.is_tensor(value):
        return float(value) * scale
    flat = value.reshape(-1).to(torch.float64)
    return float(flat[b if flat.numel() > 1 else 0]) * scale


def _text(value: torch.Tensor, mask: torch.Tensor | None, b: int, name: str) -> torch.Tensor:
    """Returns the unmasked rows of the text embeddings."""
    if mask is None:
        return value[b]
    if mask.dim() != 2 or mask.shape != value.shape[:2]:
        raise InvalidRequest(f"{name} has the shape {list(mask.shape)} and the text "
                             f"{list(value.shape)}: a mask needs a value per row of text")
    return value[b][mask[b] > 0.5]


def _first_rows(mask: torch.Tensor | None, b: int, rows: int, name: str) -> int:
    """Returns the number of unmasked rows, which must be the first ones."""
    if mask is None:
        return rows
    on = mask[b] > 0.5
    n = int(on.sum())
    if not bool(on[:n].all()):
        raise Unsupported(f"{name} has text after padding, which xdit does not support")
    return n


def _image_grid(ids: torch.Tensor, number: int, what: str) -> tuple[int, int]:
    """Returns rows and columns of an image from the ids [n, (index, row, column)] of its tokens."""
    rows, columns = int(ids[:, 1].max()) + 1, int(ids[:, 2].max()) + 1
    if rows * columns == len(ids):
        want = torch.cartesian_prod(torch.tensor([number]), torch.arange(rows),
                                    torch.arange(columns))
        if torch.equal(ids[:, :3].long(), want) and bool((ids[:, 3:] == 0).all()):
            return rows, columns
    raise Unsupported(f"{what}: the places of {len(ids)} tokens are not those of an image's rows "
                      "and columns from 0, one after the other")


def _images(ids: torch.Tensor, step: int) -> list[tuple[int, int]]:
    """Returns the grids of the image and of the reference images, whose first id is a multiple of
    `step`."""
    ids = ids[0] if ids.dim() == 3 else ids
    numbers, counts = torch.unique_consecutive(ids[:, 0].long(), return_counts=True)
    grids, at = [], 0
    for i, n in enumerate(counts.tolist()):
        if int(numbers[i]) != i * step:
            raise Unsupported(f"img_ids: image {i} has the number {int(numbers[i])}, not "
                              f"{i * step}")
        grids.append(_image_grid(ids[at:at + n], i * step, "img_ids"))
        at += n
    return grids


def _tokens(value: torch.Tensor, grids: list[tuple[int, int]], b: int, layers: int = 1) -> Values:
    """Splits tokens into those of the image, or of layers of one size, and of the reference images
    after it. grids: rows and columns of a layer, and of each reference image."""
    n = layers * grids[0][0] * grids[0][1]
    tokens = n + sum(r * c for r, c in grids[1:])
    if tokens != value.shape[1]:
        raise InvalidRequest(f"hidden_states has {value.shape[1]} tokens, and their ids are "
                             f"those of {tokens} tokens")
    inputs: Values = {"latents": value[b, :n], "grid": [layers, *grids[0]]}
    if len(grids) > 1:
        inputs.update(reference=value[b, n:], references=grids[1:])
    return inputs


# ---- results -------------------------------------------------------------------------------------

def _stack_tokens(v: Values, rows: list[torch.Tensor], config: Any) -> torch.Tensor:
    """Stacks predictions to [B,N,F], with zeros for tokens of reference images."""
    out = torch.stack(rows)
    short = v["hidden_states"].shape[1] - out.shape[1]
    if short:
        out = torch.cat([out, out.new_zeros(len(rows), short, out.shape[2])], dim=1)
    return out.to(v["hidden_states"].dtype)


def _stack_cells(v: Values, rows: list[torch.Tensor], config: Any) -> torch.Tensor:
    return torch.stack(rows).to(v["hidden_states"].dtype)


def _stack_image(v: Values, rows: list[torch.Tensor], config: Any) -> torch.Tensor:
    """Stacks predictions to [B,C,h,w], with zeros for learned variances, which are unused."""
    out = torch.stack(rows)
    more = v["hidden_states"].shape[1]
    twice = config.get("learn_sigma", (config.get("out_channels") or more) == 2 * more)
    out = torch.cat([out, torch.zeros_like(out)], dim=1) if twice else out
    return out.to(v["hidden_states"].dtype)


def _stack_noise(v: Values, rows: list[torch.Tensor], config: Any) -> torch.Tensor:
    """Stacks rows [T,C,h,w] to [B,C,T,h,w], with zeros for learned variances."""
    return _stack_image(v, [row.transpose(0, 1) for row in rows], config).contiguous()


def _stack_video(v: Values, rows: list[torch.Tensor], config: Any) -> torch.Tensor:
    """Stacks rows [T,C,h,w] to [B,C,T,h,w]."""
    return torch.stack(rows).transpose(1, 2).contiguous().to(v["hidden_states"].dtype)


# ---- images in cells -----------------------------------------------------------------------------

def _pixart(v: Values, config: Any) -> Passes:
    more = v["added_cond_kwargs"] or {}
    size, ratio = more.get("resolution"), more.get("aspect_ratio")
    for b, latents in enumerate(v["hidden_states"]):
        inputs = {"latents": latents, "timestep": _row(v["timestep"], b),
                  "text": _text(v["encoder_hidden_states"], v["encoder_attention_mask"], b,
                                "encoder_attention_mask")}
        if size is not None:
            inputs["height"], inputs["width"] = size[b].tolist()
            if abs(_row(ratio, b) * inputs["width"] - inputs["height"]) > 1e-2 * inputs["height"]:
                raise Unsupported(f"aspect_ratio is {_row(ratio, b):g}, and the resolution "
                                  f"{inputs['height']:g} x {inputs['width']:g} has another one")
        yield inputs


def _sd3(v: Values, config: Any) -> Passes:
    for b, latents in enumerate(v["hidden_states"]):
        yield {"latents": latents, "text": v["encoder_hidden_states"][b],
               "pooled": v["pooled_projections"][b], "timestep": _row(v["timestep"], b)}


def _auraflow(v: Values, config: Any) -> Passes:
    for b, latents in enumerate(v["hidden_states"]):
        yield {"latents": latents, "text": v["encoder_hidden_states"][b],
               "timestep": _row(v["timestep"], b, 1000)}


def _hunyuan(v: Values, config: Any) -> Passes:
    first, second = v["encoder_hidden_states"], v["encoder_hidden_states_t5"]
    width = max(first.shape[2], second.shape[2])
    style = v["style"]
    if style is not None and bool((style != 0).any()):
        raise Unsupported("style is not 0, which xdit does not compute")
    for b, latents in enumerate(v["hidden_states"]):
        rows = [torch.nn.functional.pad(t[b], (0, width - t.shape[2])) for t in (first, second)]
        inputs = {"latents": latents, "timestep": _row(v["timestep"], b), "text": torch.cat(rows),
                  "text_real": [_first_rows(v["text_embedding_mask"], b, first.shape[1],
                                            "text_embedding_mask"),
                                _first_rows(v["text_embedding_mask_t5"], b, second.shape[1],
                                            "text_embedding_mask_t5")]}
        if v["image_meta_size"] is not None:
            meta = [float(x) for x in v["image_meta_size"][b]]
            if meta[:2] != [1024, 1024] or meta[4:] != [0, 0]:
                raise Unsupported(f"image_meta_size is {meta}: xdit computes the original size "
                                  "1024 x 1024 without a crop (the pipeline's default)")
            inputs["height"], inputs["width"] = meta[2:4]
        yield inputs


def _zimage(v: Values, config: Any) -> Passes:
    if v["patch_size"] != 2 or v["f_patch_size"] != 1:
        raise Unsupported(f"patch_size is {v['patch_size']} and f_patch_size {v['f_patch_size']}; "
                          "xdit computes 2 and 1")
    for b, (latents, text) in enumerate(zip(v["x"], v["cap_feats"])):
        if not torch.is_tensor(latents) or not torch.is_tensor(text):
            raise Unsupported("x and cap_feats are lists of lists: xdit does not support "
                              "image editing with this class")
        yield {"latents": latents.transpose(0, 1), "text": text,
               "timestep": 1000 - _row(v["t"], b, 1000)}


def _zimage_list(v: Values, rows: list[torch.Tensor], config: Any) -> list[torch.Tensor]:
    """The class predicts the velocity from noise to image, the library the opposite one."""
    return [-r.transpose(0, 1).to(x.dtype) for r, x in zip(rows, v["x"])]


def _lumina2(v: Values, config: Any) -> Passes:
    for b, latents in enumerate(v["hidden_states"]):
        yield {"latents": latents, "timestep": 1000 - _row(v["timestep"], b, 1000),
               "text": _text(v["encoder_hidden_states"], v["encoder_attention_mask"], b,
                             "encoder_attention_mask")}


def _lumina2_image(v: Values, rows: list[torch.Tensor], config: Any) -> torch.Tensor:
    """As _zimage_list."""
    return -_stack_cells(v, rows, config)


def _sana(v: Values, config: Any) -> Passes:
    for b, latents in enumerate(v["hidden_states"]):
        inputs = {"latents": latents,
                  "timestep": _row(v["timestep"], b) / config.get("timestep_scale", 1.0),
                  "text": _text(v["encoder_hidden_states"], v["encoder_attention_mask"], b,
                                "encoder_attention_mask")}
        if config.get("guidance_embeds") and v["guidance"] is not None:
            inputs["guidance"] = _row(v["guidance"], b) / config["guidance_embeds_scale"]
        yield inputs


# ---- images in tokens ----------------------------------------------------------------------------

def _text_at_zero(ids: torch.Tensor | None) -> None:
    if ids is not None and bool((ids != 0).any()):
        raise Unsupported("txt_ids must be 0: xdit does not support others")


def _residuals(v: Values, b: int, config: Any) -> Values:
    """Returns the residuals of a ControlNet for row b, and for each block the number of its
    residual: samples are repeated for ceil(n / m) blocks, or in turn."""
    rows, at = [], []
    for name, blocks in (("controlnet_block_samples", config["num_layers"]),
                         ("controlnet_single_block_samples", config["num_single_layers"])):
        samples, first = v[name], len(rows)
        if samples is None or not blocks:
            at += [-1] * blocks
            continue
        if not len(samples) or any(s.shape[0] not in (1, len(v["hidden_states"]))
                                   for s in samples):
            raise InvalidRequest(f"{name} must be tensors with as many rows as hidden_states")
        each = -(-blocks // len(samples))
        turns = v["controlnet_blocks_repeat"] and name == "controlnet_block_samples"
        at += [first + (i % len(samples) if turns else i // each) for i in range(blocks)]
        rows += [s[b if s.shape[0] > 1 else 0] for s in samples[:max(at[-blocks:]) + 1 - first]]
    return {"residuals": rows, "residual_at": at} if rows else {}


def _flux(v: Values, config: Any) -> Passes:
    _text_at_zero(v["txt_ids"])
    grids = _images(v["img_ids"], 1)
    guided = config.get("guidance_embeds")
    for b in range(len(v["hidden_states"])):
        inputs = {"text": v["encoder_hidden_states"][b], "pooled": v["pooled_projections"][b],
                  "timestep": _row(v["timestep"], b, 1000)}
        if guided and v["guidance"] is not None:
            inputs["guidance"] = _row(v["guidance"], b)
        yield {**inputs, **_tokens(v["hidden_states"], grids, b), **_residuals(v, b, config)}


def _chroma(v: Values, config: Any) -> Passes:
    _text_at_zero(v["txt_ids"])
    """Drops masked rows, as in training. diffusers 0.42 adds a float mask to the logits instead,
    and masks only with a bool mask."""
    grids, text, mask = _images(v["img_ids"], 1), v["encoder_hidden_states"], v["attention_mask"]
    if mask is not None and not bool((mask[:, text.shape[1]:] > 0.5).all()):
        raise Unsupported("attention_mask hides tokens of the image, which xdit does not compute")
    for b in range(len(v["hidden_states"])):
        rows = None if mask is None else mask[:, :text.shape[1]]
        yield {"text": _text(text, rows, b, "attention_mask"),
               "timestep": _row(v["timestep"], b, 1000), **_tokens(v["hidden_states"], grids, b)}


def _flux2(v: Values, config: Any) -> Passes:
    text, ids = v["encoder_hidden_states"], v["txt_ids"]
    ids = ids[0] if ids.dim() == 3 else ids
    if bool((ids[:, :3] != 0).any()) or not torch.equal(ids[:, 3].long(), torch.arange(len(ids))):
        raise Unsupported("txt_ids do not number the text's tokens from 0")
    if v["kv_cache_mode"] is not None or v["num_ref_tokens"]:
        raise Unsupported("keys and values of reference images are kept between steps (kv_cache), "
                          "which xdit does not do")
    grids = _images(v["img_ids"], 10)
    for b in range(len(v["hidden_states"])):
        inputs = {"text": text[b], "timestep": _row(v["timestep"], b, 1000)}
        if config.get("guidance_embeds", True) and v["guidance"] is not None:
            inputs["guidance"] = _row(v["guidance"], b)
        yield {**inputs, **_tokens(v["hidden_states"], grids, b)}


def _qwen(v: Values, config: Any) -> Passes:
    text, mask = v["encoder_hidden_states"], v["encoder_hidden_states_mask"]
    for b in range(len(v["hidden_states"])):
        shapes = v["img_shapes"][b if len(v["img_shapes"]) > 1 else 0]
        shapes = [shapes] if isinstance(shapes[0], int) else shapes
        if any(frames != 1 for frames, _, _ in shapes):
            raise Unsupported(f"img_shapes is {shapes}; xdit computes images of one frame")
        grids, layers = [(h, w) for _, h, w in shapes], 1
        if config.get("use_layer3d_rope"):
            layers, grids = len(grids) - 1, [grids[0], grids[-1]]
            if layers < 1 or any(s != shapes[0] for s in shapes[:-1]):
                raise Unsupported(f"img_shapes is {shapes}; xdit computes layers of one size and "
                                  "one reference image after them")
        kinds = v["additional_t_cond"]
        if kinds is not None and bool(torch.as_tensor(kinds).any()):
            raise Unsupported("additional_t_cond is not 0, the value of images with alpha")
        n = _first_rows(mask, b, text.shape[1], "encoder_hidden_states_mask")
        yield {"text": text[b, :n], "timestep": _row(v["timestep"], b, 1000),
               **_tokens(v["hidden_states"], grids, b, layers)}


def _qwen21(v: Values, config: Any) -> Passes:
    """The pipeline's cache of keys and values (kv_cache) stays empty, because every pass computes
    the text itself."""
    shapes, text = v["img_shapes"][0], v["encoder_hidden_states"]
    if len(shapes) != 1 or shapes[0][0] != 1:
        raise Unsupported(f"img_shapes is {shapes}; xdit computes one image without reference "
                          "images")
    for b in range(len(v["hidden_states"])):
        n = _first_rows(v["encoder_hidden_states_mask"], b, text.shape[1],
                        "encoder_hidden_states_mask")
        yield {"text": text[b, :n], "timestep": _row(v["timestep"], b, 1000),
               **_tokens(v["hidden_states"], [shapes[0][1:]], b)}


def _krea2(v: Values, config: Any) -> Passes:
    text, ids = v["encoder_hidden_states"], v["position_ids"]
    n = text.shape[1]
    _text_at_zero(ids[:n])
    grids = _images(ids[n:], 1)
    for b in range(len(v["hidden_states"])):
        rows = _text(text, v["encoder_attention_mask"], b, "encoder_attention_mask")
        yield {"text": rows.flatten(1), "timestep": _row(v["timestep"], b, 1000),
               **_tokens(v["hidden_states"], grids, b)}


# ---- videos --------------------------------------------------------------------------------------

def _cogvideox(v: Values, config: Any) -> Passes:
    if v["ofs"] is not None and _row(v["ofs"], 0) != 2:
        raise Unsupported(f"ofs is {_row(v['ofs'], 0):g}; xdit computes 2, the pipelines' value")
    hidden, p, p_t = v["hidden_states"], config["patch_size"], config.get("patch_size_t") or 1
    tokens = hidden.shape[1] // p_t * (hidden.shape[3] // p) * (hidden.shape[4] // p)
    angles = v["image_rotary_emb"]
    if angles is not None and len(angles[0]) != tokens:
        raise Unsupported(f"image_rotary_emb has {len(angles[0])} rows, and the video {tokens} "
                          "tokens")
    for b, latents in enumerate(hidden):
        yield {"latents": latents, "text": v["encoder_hidden_states"][b],
               "timestep": _row(v["timestep"], b)}


def _mochi(v: Values, config: Any) -> Passes:
    for b, latents in enumerate(v["hidden_states"]):
        yield {"latents": latents.transpose(0, 1), "timestep": _row(v["timestep"], b),
               "text": _text(v["encoder_hidden_states"], v["encoder_attention_mask"], b,
                             "encoder_attention_mask")}


def _times(times: Any, b: int) -> Values:
    """Returns the timestep of row b, and the number of first tokens with timestep 0. Times of each
    token are [B,n] or, by frame, [B,1,T,h,w]."""
    if not torch.is_tensor(times) or times.dim() < 2 or times[0].numel() == 1:
        return {"timestep": _row(times, b)}
    row, t = times[b].flatten(), float(times[b].max())
    held = int((row == 0).sum()) if t else 0
    if bool((row[:held] != 0).any()) or bool((row[held:] != t).any()):
        raise Unsupported("timestep: xdit computes tokens of two times, the first ones of time 0")
    return {"timestep": t, "held": held}


def _ltx(v: Values, config: Any) -> Passes:
    scale, times = v["rope_interpolation_scale"], v["timestep"]
    if v["video_coords"] is not None:
        raise Unsupported("video_coords: xdit.accelerate computes no given frames; xdit.Pipeline "
                          "has frame_index")
    if scale is not None and tuple(scale)[1:] != (32, 32):
        raise Unsupported(f"rope_interpolation_scale is {tuple(scale)}; xdit.accelerate computes "
                          "32 pixels in each row and column")
    for b, latents in enumerate(v["hidden_states"]):
        inputs = {"latents": latents, "grid": (v["num_frames"], v["height"], v["width"]),
                  "text": _text(v["encoder_hidden_states"], v["encoder_attention_mask"], b,
                                "encoder_attention_mask")}
        if scale is not None:
            inputs["fps"] = 8 / float(scale[0])
        yield {**inputs, **_times(times, b)}


def _sana_video(v: Values, config: Any) -> Passes:
    for b, inputs in enumerate(_mochi(v, config)):
        yield {**inputs, **_times(v["timestep"], b)}


def _latte(v: Values, config: Any) -> Passes:
    if not v["enable_temporal_attentions"]:
        raise Unsupported("enable_temporal_attentions is False; xdit computes temporal blocks")
    for b, latents in enumerate(v["hidden_states"]):
        yield {"latents": latents.transpose(0, 1), "timestep": _row(v["timestep"], b),
               "text": _text(v["encoder_hidden_states"], v["encoder_attention_mask"], b,
                             "encoder_attention_mask")}


def _wan(v: Values, config: Any) -> Passes:
    image = v["encoder_hidden_states_image"]
    for b, latents in enumerate(v["hidden_states"]):
        inputs = {"latents": latents.transpose(0, 1), "text": v["encoder_hidden_states"][b]}
        if image is not None:
            inputs["image"] = image[b if image.shape[0] > 1 else 0]
        yield {**inputs, **_times(v["timestep"], b)}


def _skyreels(v: Values, config: Any) -> Passes:
    times, fps = v["timestep"], v["fps"]
    if torch.is_tensor(times) and times.dim() == 2:             # of each latent frame
        if bool((times != times[:, :1]).any()):
            raise Unsupported("timestep: xdit computes frames of one time (ar_step 0)")
        times = times[:, 0]
    rates = list(fps) if isinstance(fps, (list, tuple)) or torch.is_tensor(fps) else [fps]
    for b, inputs in enumerate(_wan({**v, "timestep": times}, config)):
        rate = rates[b if len(rates) > 1 else 0]
        if config.get("inject_sample_info"):                    # an index: 16, or another rate
            if rate is None:
                raise InvalidRequest("SkyReelsV2Transformer3DModel.forward needs fps, since the "
                                     "config has inject_sample_info")
            inputs["fps"] = 24.0 if int(rate) else 16.0
        yield inputs


def _hunyuan_video(v: Values, config: Any) -> Passes:
    for b, latents in enumerate(v["hidden_states"]):
        inputs = {"latents": latents.transpose(0, 1), "timestep": _row(v["timestep"], b),
                  "pooled": v["pooled_projections"][b],
                  "text": _text(v["encoder_hidden_states"], v["encoder_attention_mask"], b,
                                "encoder_attention_mask")}
        if config.get("guidance_embeds") and v["guidance"] is not None:
            inputs["guidance"] = _row(v["guidance"], b, 1e-3)
        if config.get("image_condition_type") == "token_replace":
            p = config.get("patch_size", 2)
            inputs["held"] = latents.shape[-2] // p * (latents.shape[-1] // p)
        yield inputs


def _hunyuan_video15(v: Values, config: Any) -> Passes:
    image, sees = v["image_embeds"], config.get("task_type") != "t2v"
    if sees != (image is not None and bool((image != 0).any())):
        raise Unsupported("image_embeds: xdit computes a model from an image (task_type i2v) only "
                          "with an image, and a model from text (t2v) only without one")
    if v["timestep_r"] is not None:
        raise Unsupported("timestep_r: xdit.accelerate does not compute it; xdit.Pipeline does")
    for b, latents in enumerate(v["hidden_states"]):
        rows = [_text(v["encoder_hidden_states" + k], v["encoder_attention_mask" + k], b,
                      "encoder_attention_mask" + k) for k in ("", "_2")]
        width = max(r.shape[1] for r in (*rows, image[b] if sees else rows[0]))
        inputs = {"latents": latents.transpose(0, 1), "timestep": _row(v["timestep"], b),
                  "text_real": [r.shape[0] for r in rows],
                  "text": torch.cat([torch.nn.functional.pad(r, (0, width - r.shape[1]))
                                     for r in rows])}
        if sees:
            inputs["image"] = image[b]
        else:                                                   # other channels are zeros
            inputs["latents"] = inputs["latents"][:, :config["out_channels"]]
        yield inputs


def _vace(v: Values, config: Any) -> Passes:
    scales, control = v["control_hidden_states_scale"], v["control_hidden_states"]
    if v["encoder_hidden_states_image"] is not None:
        raise Unsupported("encoder_hidden_states_image: xdit reads no image beside a control video")
    if scales is not None and bool((torch.as_tensor(scales) != 1).any()):
        raise Unsupported("control_hidden_states_scale: xdit.accelerate computes hints of scale 1; "
                          "xdit.Pipeline has conditioning_scale")
    if control.shape[2:] != v["hidden_states"].shape[2:]:
        raise InvalidRequest(f"control_hidden_states has the shape {list(control.shape)} and "
                             f"hidden_states {list(v['hidden_states'].shape)}: frames and size "
                             "must be equal")
    both = torch.cat([v["hidden_states"], control.expand(v["hidden_states"].shape[0], *[-1] * 4)
                      .to(v["hidden_states"].dtype)], dim=1)
    yield from _wan({**v, "hidden_states": both}, config)


# ---- the table -----------------------------------------------------------------------------------

_KWARGS = ("joint_attention_kwargs", "attention_kwargs", "cross_attention_kwargs")
_CONTROL = ("controlnet_block_samples", "controlnet_single_block_samples",
            "block_controlnet_hidden_states")

# ---- U-Nets --------------------------------------------------------------------------------------

def _guidance(value: torch.Tensor) -> float:
    """Returns the guidance scale w from its sinusoids, which are those of 1000 (w - 1). Each
    frequency, from the lowest to the highest, refines the number."""
    sin, cos = value.to(torch.float64).chunk(2)
    phases = torch.atan2(sin, cos).tolist()
    number = 0.0
    for i in range(len(phases) - 1, -1, -1):
        rate = 10000.0 ** (-i / (len(phases) - 1))
        turns = round((number * rate - phases[i]) / (2 * math.pi)) if i < len(phases) - 1 else 0
        number = (phases[i] + 2 * math.pi * turns) / rate
    return 1 + number / 1000


def _unet(v: Values, config: Any) -> Passes:
    more = v["added_cond_kwargs"] or {}
    other = [k for k in more if k not in ("text_embeds", "time_ids")]
    if other:
        raise Unsupported(f"added_cond_kwargs has {', '.join(other)}, which xdit does not support")
    for b, latents in enumerate(v["sample"]):
        inputs = {"latents": latents, "timestep": _row(v["timestep"], b),
                  "text": v["encoder_hidden_states"][b]}
        if v["timestep_cond"] is not None:
            inputs["guidance"] = _guidance(v["timestep_cond"][b])
        if config.get("addition_embed_type") == "text_time":
            if more.get("text_embeds") is None or more.get("time_ids") is None:
                raise InvalidRequest("UNet2DConditionModel.forward needs text_embeds and time_ids "
                                     "in added_cond_kwargs")
            ids = more["time_ids"][b].reshape(-1).tolist()
            if len(ids) != 6:
                raise Unsupported(f"time_ids has {len(ids)} numbers; 6 are supported")
            inputs.update(pooled=more["text_embeds"][b], original=ids[:2], crop=ids[2:4],
                          height=ids[4], width=ids[5])
        yield inputs


def _stack_sample(v: Values, rows: list[torch.Tensor], config: Any) -> torch.Tensor:
    return torch.stack(rows).to(v["sample"].dtype)


_TEXT = ("hidden_states", "encoder_hidden_states")
_POOLED = (*_TEXT, "pooled_projections")
_TWO = (*_TEXT, "encoder_hidden_states_t5")

FORWARDS = {
    "FluxTransformer2DModel": Forward(_flux, _stack_tokens, _POOLED, ()),
    "ChromaTransformer2DModel": Forward(_chroma, _stack_tokens, _TEXT, _CONTROL),
    "Flux2Transformer2DModel": Forward(_flux2, _stack_tokens, _TEXT, ("kv_cache", "kv_cache_mode")),
    "QwenImageTransformer2DModel": Forward(_qwen, _stack_tokens, _TEXT,
                                           (*_CONTROL, "guidance")),
    "PixArtTransformer2DModel": Forward(_pixart, _stack_image, _TEXT, ("attention_mask",)),
    "Transformer2DModel": Forward(_pixart, _stack_image, _TEXT,
                                  ("attention_mask", "class_labels")),
    "SD3Transformer2DModel": Forward(_sd3, _stack_cells, _POOLED, (*_CONTROL, "skip_layers")),
    "AuraFlowTransformer2DModel": Forward(_auraflow, _stack_cells, _TEXT, ()),
    "HunyuanDiT2DModel": Forward(_hunyuan, _stack_image, _TWO, _CONTROL),
    "ZImageTransformer2DModel": Forward(_zimage, _zimage_list, ("x", "cap_feats"),
                                        (*_CONTROL, "siglip_feats", "image_noise_mask")),
    "Lumina2Transformer2DModel": Forward(_lumina2, _lumina2_image, _TEXT, ()),
    "QwenImage21Transformer2DModel": Forward(_qwen21, _stack_tokens, _TEXT, ()),
    "Krea2Transformer2DModel": Forward(_krea2, _stack_tokens, _TEXT, ()),
    "SanaTransformer2DModel": Forward(_sana, _stack_image, _TEXT,
                                      ("attention_mask", "controlnet_block_samples")),
    "SanaVideoTransformer3DModel": Forward(_sana_video, _stack_video, _TEXT,
                                           ("attention_mask", "controlnet_block_samples",
                                            "guidance")),
    "CogVideoXTransformer3DModel": Forward(_cogvideox, _stack_cells, _TEXT, ("timestep_cond",)),
    "MochiTransformer3DModel": Forward(_mochi, _stack_video, _TEXT, ()),
    "LTXVideoTransformer3DModel": Forward(_ltx, _stack_tokens, _TEXT, ()),
    "LatteTransformer3DModel": Forward(_latte, _stack_noise, _TEXT, ()),
    "HunyuanVideoTransformer3DModel": Forward(_hunyuan_video, _stack_video, _POOLED, ()),
    "HunyuanVideo15Transformer3DModel": Forward(_hunyuan_video15, _stack_video,
                                                (*_TEXT, "encoder_hidden_states_2"), ()),
    "WanTransformer3DModel": Forward(_wan, _stack_video, _TEXT, ()),
    "SkyReelsV2Transformer3DModel": Forward(_skyreels, _stack_video, _TEXT, ()),
    "UNet2DConditionModel": Forward(_unet, _stack_sample, ("sample", "encoder_hidden_states"),
                                    ("class_labels", "attention_mask", "encoder_attention_mask",
                                     "down_block_additional_residuals",
                                     "mid_block_additional_residual",
                                     "down_intrablock_additional_residuals")),
    "WanVACETransformer3DModel": Forward(_vace, _stack_video, _TEXT, ()),
}


def _is_rows(value: Any) -> bool:
    return torch.is_tensor(value) and value.dim() > 1 or isinstance(value, list)


def check(name: str, v: Values) -> None:
    """Refuses missing arguments, different batch sizes, and unsupported arguments."""
    first = FORWARDS[name].rows[0]
    for key in (*FORWARDS[name].rows, *(k for k in ("img_ids", "img_shapes", "timestep", "t")
                                        if k in v)):
        if v[key] is None:
            raise InvalidRequest(f"{name}.forward needs {key}")
    for key in FORWARDS[name].rows:
        if not _is_rows(v[key]) or len(v[key]) != len(v[first]):
            raise InvalidRequest(f"{name}.forward: {key} must have as many rows as {first}")
    for key in (*FORWARDS[name].unused, *_KWARGS):
        value = v.get(key)
        if value is not None and not (isinstance(value, (dict, list, tuple)) and not value):
            raise Unsupported(f"{name}.forward got {key}, which xdit does not support: "
                              "call xdit.restore(pipe) to use the original forward")
