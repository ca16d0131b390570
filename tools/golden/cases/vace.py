"""Wan VACE: the transformer alone, and whole requests, in the layout of wan.py.

vace-forms/NAME also has "extra", tokens of the control latents, and "scales", the factors of the
hints. Requests have "condition" [T,C,h,w], the control latents that the transformer reads: frames
of reference images, then those of the video. The control video is a folder of images, video; its
mask is a folder, mask, or mask.png for all frames. They are larger or smaller than the requested
size, but of its ratio where diffusers needs that: it encodes other videos at another size.

vace-lora has LoRA files as wan-lora; kohya.safetensors has the modules of a control block, too,
which diffusers does not read from such files.
"""
import json

import numpy as np
import torch
from diffusers import (FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler, WanVACEPipeline,
                       WanVACETransformer3DModel)
from PIL import Image
from safetensors.torch import save_file
from transformers import T5Tokenizer

from ..common import add_loras, make_each, make_image, make_mask, quiet
from ..fill import weights
from . import wan
from .video import keep_frames
from .wan import FRAMES_FIRST, KOHYA, PEFT, SMALL, UNIPC, tokens

FORMS = {
    "plain": (dict(SMALL, num_layers=4, vace_layers=[0, 1, 3], vace_in_channels=9), (3, 6, 10),
              None),
    "scaled": (dict(num_attention_heads=5, attention_head_dim=10, in_channels=3, out_channels=3,
                    text_dim=12, freq_dim=32, ffn_dim=40, num_layers=3, cross_attn_norm=False,
                    patch_size=(2, 1, 3), eps=1e-5, vace_layers=[0, 2], vace_in_channels=7),
               (4, 3, 6), [0.6, -1.3]),
}
# 4 channels outside the mask, 4 inside, and 8 x 8 of the mask
CONTROLS = dict(vace_layers=[0, 2], vace_in_channels=72, num_layers=3)
MODELS = {
    "vace": dict(dit=SMALL | CONTROLS, weights="bf16", dit_kind=WanVACETransformer3DModel,
                 kind=WanVACEPipeline,
                 scheduler=UniPCMultistepScheduler(**UNIPC)),
    "vace-five": dict(dit=dict(SMALL, num_attention_heads=5, attention_head_dim=10, num_layers=2,
                               cross_attn_norm=False, vace_layers=[0, 1], vace_in_channels=72),
                      weights="f16", dit_kind=WanVACETransformer3DModel,
                 kind=WanVACEPipeline,
                      scheduler=FlowMatchEulerDiscreteScheduler(shift=5.0)),
}
RUNS = {
    # a video of 1.5 times the size, whose mask is a smaller video, and a reference image
    "vace": dict(prompts=["a red circle"], negative_prompt="a green ring", width=64, height=48,
                 frames=9, steps=4, seed=91, video=(96, 72), mask=(31, 40), images=[(70, 37)],
                 scale=[0.9, 1.4]),
    "vace-text": dict(model="vace", prompts=["a star"], width=48, height=32, frames=6, steps=2,
                      seed=92, guidance=1.0),
    "vace-images": dict(model="vace", prompts=["two stars"], width=32, height=48, frames=5, steps=2,
                        seed=93, guidance=1.0, images=[(40, 24), (9, 31)], scale=0.7),
    "vace-lora": dict(model="vace", prompts=["a white star"], width=32, height=32, frames=1,
                      steps=2, seed=94, guidance=1.0, video=(32, 32),
                      loras=dict(peft=0.8, kohya=-0.5)),
    # one mask for all frames
    "vace-five": dict(prompts=["a purple ring"], negative_prompt="", width=48, height=32, frames=5,
                      steps=3, seed=95, guidance=3.0, video=(48, 32), mask_image=(60, 50)),
}
KOHYA_CONTROL = {f"vace_blocks_0_{k.replace('.', '_')}": [f"vace_blocks.0.{v}"]
                 for k, v in (wan.BLOCK | {"before_proj": "proj_in", "after_proj": "proj_out"}
                              ).items()}


# ---- the transformer alone -----------------------------------------------------------------------

def run_form(name, out):
    config, (T, H, W), scales = FORMS[name]
    model = WanVACETransformer3DModel(**config).eval()
    for n, p in model.named_parameters():
        small = p.ndim == 1 or n.endswith("scale_shift_table")
        gain = 0.1 if small else 0.9 / np.sqrt(np.float32(p[0].numel()))
        p.data.copy_(weights(n, p.shape, gain, 1.0 if p.ndim == 1 and n.endswith("weight")
                             else 0.0))
    c, g = model.config, torch.Generator().manual_seed(29)
    z = torch.randn(1, c.in_channels, T, H, W, generator=g)
    control = torch.randn(1, c.vace_in_channels, T, H, W, generator=g)
    text = torch.randn(1, 7, c.text_dim, generator=g)
    factors = torch.tensor(scales or [1.0] * len(c.vace_layers))
    t = torch.tensor([613.0])
    y = model(z, t, text, control_hidden_states=control,
              control_hidden_states_scale=factors if scales else None, return_dict=False)[0]
    d = out / "vace-forms" / name
    d.mkdir(parents=True, exist_ok=True)
    kept = {k: v for k, v in c.items() if not k.startswith("_")}
    (d / "config.json").write_text(json.dumps({"_class_name": type(model).__name__, **kept},
                                              indent=2) + "\n")
    grid = [n // k for n, k in zip((T, H, W), c.patch_size)]
    save_file({"latents": tokens(z[0], c.patch_size), "extra": tokens(control[0], c.patch_size),
               "text": text[0], "time": t, "out": tokens(y[0], c.patch_size), "scales": factors,
               "grid": torch.tensor(grid, dtype=torch.float32)}, d / "golden.safetensors")
    for p in d.iterdir():
        p.chmod(0o644)
    print(f"{name}: {grid} tokens, {y.std():.2f}")


# ---- requests ------------------------------------------------------------------------------------

def write_frames(folder, frames):
    folder.mkdir(exist_ok=True)
    for i, frame in enumerate(frames):
        frame.save(folder / f"{i}.png")


def mask_frame(size, i):
    """A bright area that moves from frame to frame."""
    return make_mask(size).rotate(40 * i)


def inputs_of(r, d):
    """The arguments that a run has of a control video, its mask and images, written to its
    folder."""
    given, count = {}, r["frames"]
    if "video" in r:
        # few colours keep files small
        frames = [make_image(r["video"], r["seed"] + i).quantize(8) for i in range(count)]
        write_frames(d / "video", frames)
        given["video"] = [f.convert("RGB") for f in frames]
    if "mask" in r:
        given["mask"] = [mask_frame(r["mask"], i) for i in range(count)]
        write_frames(d / "mask", given["mask"])
    if "mask_image" in r:
        make_mask(r["mask_image"]).save(d / "mask.png")
        given["mask"] = [Image.open(d / "mask.png").convert("RGB")] * count
    if "images" in r:
        given["reference_images"] = [make_image(size, r["seed"] + 100 + i)
                                     for i, size in enumerate(r["images"])]
        for i, image in enumerate(given["reference_images"]):
            image.save(d / f"image{f'_{i + 1}' if i else ''}.png")
    return given


def notes_of(r):
    """What golden.json has beside the notes of wan.py."""
    images, scale = len(r.get("images", ())), r.get("scale")
    notes = {key: 1 for key, k in (("image", "images"), ("control_video", "video"),
                                   ("mask_video", "mask"), ("mask", "mask_image")) if k in r}
    if images > 1:
        notes["more_images"] = images - 1
    if scale is not None:
        notes["conditioning_scale"] = ",".join(
            map(str, scale if isinstance(scale, list) else [scale]))
    return notes


def run(name, out_dir):
    r = dict(model=name, negative_prompt="", guidance=5.0, loras={}, max_sequence_length=21)
    r |= RUNS[name]
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    pipe = WanVACEPipeline(
        tokenizer=T5Tokenizer.from_pretrained(out_dir / r["model"] / "tokenizer"),
        scheduler=MODELS[r["model"]]["scheduler"], **wan.make_parts(r["model"]))
    pipe.set_progress_bar_config(disable=True)
    if r["loras"]:
        add_loras(pipe, r, d, PEFT, KOHYA | KOHYA_CONTROL, prefix="diffusion_model",
                  merges=True)
    out, trail, noise = {}, [], []
    wan.record_text(pipe, r, [], out)
    prepare, masks, videos = pipe.prepare_latents, pipe.prepare_masks, pipe.prepare_video_latents

    def watched(*args, **kwargs):
        noise.append(prepare(*args, **kwargs))
        return noise[-1]

    def watched_masks(*args, **kwargs):
        z = masks(*args, **kwargs)
        out["condition"] = torch.cat([out["condition"], z[0].permute(FRAMES_FIRST)], 1)
        return z

    def watched_videos(*args, **kwargs):
        z = videos(*args, **kwargs)
        out["condition"] = z[0].permute(FRAMES_FIRST)
        return z
    pipe.prepare_latents, pipe.prepare_masks = watched, watched_masks
    pipe.prepare_video_latents = watched_videos

    def keep(p, step, t, kw):
        trail.append((float(t), kw["latents"].clone()))
        return {}
    frames = pipe(prompt=r["prompts"][0], negative_prompt=r["negative_prompt"],
                  num_inference_steps=r["steps"], guidance_scale=r["guidance"],
                  num_frames=r["frames"], height=r["height"], width=r["width"],
                  generator=torch.Generator("cpu").manual_seed(r["seed"]), output_type="pt",
                  callback_on_step_end=keep, max_sequence_length=r["max_sequence_length"],
                  conditioning_scale=r.get("scale", 1.0), **inputs_of(r, d)).frames
    keep_frames(name, r, out, trail, noise[0], frames, order=FRAMES_FIRST)
    wan.save(d, name, r, out, 1, notes_of(r))


def make(names, options):
    quiet()
    with torch.no_grad():
        for name in FORMS if "forms" in names else ():
            run_form(name, options.out)
    wan.MODELS |= MODELS
    make_each([n for n in names if n in RUNS], options.out, MODELS, wan.make_model, run)
