"""Wan Animate: the transformer alone, and whole requests, in the layout of wan.py.

animate-forms/NAME also has "extra", tokens of the condition and of the pose latents, and "face",
the pixels [frames, size size 3] of the face video.

Requests have folders of images, pose and face, whose sizes differ from those that are read, and to
replace a person, video and mask. Latents of a segment follow those of the segment before:
"latents.I.S" is behind step S of all segments. "noise.I" and "condition", the channels [T,C,h,w]
that the transformer reads beside the latents, are of the first segment, "noise.I.K" and
"condition.K" of segment K.
"""
import json

import numpy as np
import torch
from diffusers import (FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler,
                       WanAnimatePipeline, WanAnimateTransformer3DModel)
from safetensors.torch import save_file
from transformers import CLIPImageProcessorPil, T5Tokenizer

from ..common import add_loras, make_each, make_image, quiet
from ..fill import weights
from . import wan
from .vace import mask_frame, write_frames
from .video import keep_frames
from .wan import CLIP, FRAMES_FIRST, KOHYA_IMAGE, PEFT_IMAGE, PIXELS, SMALL, UNIPC, tokens

# a face video of 16 x 16 pixels, whose sides two blocks halve; 2 heads of its encoder
FACE = dict(motion_encoder_channel_sizes={"4": 6, "8": 5, "16": 7}, motion_encoder_size=16,
            motion_style_dim=9, motion_dim=4, motion_encoder_dim=11, face_encoder_hidden_dim=10,
            face_encoder_num_heads=2, inject_face_latents_blocks=2)
ANIMATE = dict(SMALL, num_layers=4, in_channels=12, latent_channels=4, text_dim=28, image_dim=27,
               added_kv_proj_dim=48, **FACE)
FORMS = {
    "plain": (dict(ANIMATE, text_dim=16, image_dim=14), (3, 6, 10)),
    "bare": (dict(num_attention_heads=5, attention_head_dim=10, in_channels=10, latent_channels=3,
                  out_channels=3, text_dim=12, freq_dim=32, ffn_dim=40, num_layers=2,
                  cross_attn_norm=False, patch_size=(1, 1, 3), eps=1e-5, image_dim=12,
                  added_kv_proj_dim=50, **FACE | dict(
                      motion_encoder_channel_sizes={"4": 3, "8": 5}, motion_encoder_size=8,
                      face_encoder_num_heads=3, inject_face_latents_blocks=1)), (4, 3, 6)),
}
MODELS = {
    "animate": dict(dit=ANIMATE, text=dict(d_model=28), clip=CLIP, weights="bf16",
                    kind=WanAnimatePipeline, dit_kind=WanAnimateTransformer3DModel,
                    scheduler=UniPCMultistepScheduler(**UNIPC | dict(flow_shift=5.0))),
    "animate-five": dict(dit=dict(ANIMATE, num_attention_heads=5, attention_head_dim=10,
                                  added_kv_proj_dim=50, cross_attn_norm=False, num_layers=2,
                                  inject_face_latents_blocks=1),
                         text=dict(d_model=28), clip=CLIP, weights="f16", kind=WanAnimatePipeline,
                         dit_kind=WanAnimateTransformer3DModel,
                         scheduler=FlowMatchEulerDiscreteScheduler(shift=5.0)),
}
RUNS = {
    # two segments, the second of which is longer than the video
    "animate": dict(prompts=["a red circle"], negative_prompt="a green ring", width=64, height=48,
                    frames=12, segment=9, steps=3, seed=101, guidance=2.0, image=(70, 37),
                    pose=(70, 40), face=(19, 23), faces=3),
    "animate-one": dict(model="animate", prompts=["a star"], width=32, height=48, frames=5,
                        segment=5, steps=2, seed=102, image=(31, 40), pose=(32, 48),
                        face=(16, 16)),
    # a person is replaced in two segments that share five frames
    "animate-five": dict(prompts=["a purple ring"], negative_prompt="", width=48, height=32,
                         frames=16, segment=13, overlap=5, steps=2, seed=103, guidance=3.0,
                         image=(20, 50), pose=(48, 32), face=(12, 20), video=(60, 40),
                         mask=(48, 32)),
    "animate-lora": dict(model="animate", prompts=["a white star"], width=32, height=32, frames=2,
                         segment=5, steps=2, seed=104, image=(32, 32), pose=(32, 32),
                         face=(16, 16), loras=dict(peft=0.8, kohya=-0.5)),
}


# ---- the transformer alone -----------------------------------------------------------------------

def is_small(name, p):
    """True for tensors that the program declares as vectors."""
    return p.ndim == 1 or name.endswith(("scale_shift_table", "padding_tokens",
                                         "motion_synthesis_weight"))


def run_form(name, out):
    config, (T, H, W) = FORMS[name]
    model = WanAnimateTransformer3DModel(**config).eval()
    for n, p in model.named_parameters():
        gain = 0.1 if is_small(n, p) else 0.9 / np.sqrt(np.float32(p[0].numel()))
        p.data.copy_(weights(n, p.shape, gain, 1.0 if p.ndim == 1 and n.endswith("weight")
                             else 0.0))
    c, g = model.config, torch.Generator().manual_seed(31)
    z = torch.randn(1, c.in_channels, T, H, W, generator=g)
    pose = torch.randn(1, c.latent_channels, T - 1, H, W, generator=g)
    text = torch.randn(1, 512, c.text_dim, generator=g)
    seen = torch.randn(1, 5, c.image_dim, generator=g)
    # large pixels, since weights of the motion encoder are small
    face = 1e5 * torch.randn(1, 3, 4 * (T - 2) + 1, *[c.motion_encoder_size] * 2, generator=g)
    t = torch.tensor([613.0])
    y = model(z, t, text, encoder_hidden_states_image=seen, pose_hidden_states=pose,
              face_pixel_values=face, return_dict=False)[0]
    d = out / "animate-forms" / name
    d.mkdir(parents=True, exist_ok=True)
    kept = {k: v for k, v in c.items() if not k.startswith("_")}
    (d / "config.json").write_text(json.dumps({"_class_name": type(model).__name__, **kept},
                                              indent=2) + "\n")
    grid = [n // k for n, k in zip((T, H, W), c.patch_size)]
    wide = torch.zeros(5, c.text_dim)
    wide[:, :c.image_dim] = seen[0]
    # pose latents of the first frame, which the model does not read
    extra = torch.cat([z[0, c.out_channels:], torch.cat([torch.ones_like(pose[0, :, :1]), pose[0]],
                                                        1)])
    save_file({"latents": tokens(z[0, :c.out_channels], c.patch_size),
               "extra": tokens(extra, c.patch_size), "text": torch.cat([text[0], wide]), "time": t,
               "face": face[0].permute(1, 2, 3, 0).flatten(1).contiguous(),
               "real": torch.tensor([5.0]), "out": tokens(y[0], c.patch_size),
               "grid": torch.tensor(grid, dtype=torch.float32)}, d / "golden.safetensors")
    for p in d.iterdir():
        p.chmod(0o644)
    print(f"{name}: {grid} tokens, {y.std():.2f}")


# ---- requests ------------------------------------------------------------------------------------

def frames_of(r, key, d, count, make=None):
    """Frames of a video, written to the folder `key`; few colours keep files small."""
    frames = [make(r[key], i) if make else
              make_image(r[key], r["seed"] + 50 * len(key) + i).quantize(8).convert("RGB")
              for i in range(count)]
    write_frames(d / key, frames)
    return frames


def inputs_of(r, d):
    """The image and the videos of a run, written to its folder."""
    image, count = make_image(r["image"], r["seed"]), r["frames"]
    image.save(d / "image.png")
    given = dict(image=image, pose_video=frames_of(r, "pose", d, count),
                 face_video=frames_of(r, "face", d, r.get("faces", count)), mode="animate")
    if "video" in r:
        given |= dict(background_video=frames_of(r, "video", d, count - 1),
                      mask_video=frames_of(r, "mask", d, 4, mask_frame), mode="replace")
    return given


def watch(pipe, out):
    """Keeps the noise and the transformer's further channels of every segment."""
    noise, parts = [], {}
    prepare, reference = pipe.prepare_latents, pipe.prepare_reference_image_latents
    pose, given = pipe.prepare_pose_latents, pipe.prepare_prev_segment_cond_latents

    def watched(*args, **kwargs):
        noise.append(prepare(*args, **kwargs))
        k = len(noise) - 1
        if k:
            out[f"noise.0.{k}"] = noise[k][0].permute(FRAMES_FIRST).contiguous()
        return noise[k]

    def watched_reference(*args, **kwargs):
        parts["reference"] = reference(*args, **kwargs)
        return parts["reference"]

    def watched_pose(*args, **kwargs):
        parts["pose"] = pose(*args, **kwargs)
        return parts["pose"]

    def watched_given(*args, **kwargs):
        z = given(*args, **kwargs)
        k = f".{len(noise) - 1}" if len(noise) > 1 else ""
        whole = torch.cat([parts["reference"], z], 2)[0]
        poses = torch.nn.functional.pad(parts["pose"][0], (0, 0, 0, 0, 1, 0))
        out["condition" + k] = torch.cat([whole, poses]).permute(FRAMES_FIRST).contiguous()
        return z
    pipe.prepare_latents, pipe.prepare_reference_image_latents = watched, watched_reference
    pipe.prepare_pose_latents, pipe.prepare_prev_segment_cond_latents = watched_pose, watched_given
    return noise


def run(name, out_dir):
    r = dict(model=name, negative_prompt="", guidance=1.0, loras={}, overlap=1,
             max_sequence_length=512) | RUNS[name]
    d, spec = out_dir / name, MODELS[r.get("model", name)]
    d.mkdir(parents=True, exist_ok=True)
    pipe = WanAnimatePipeline(
        tokenizer=T5Tokenizer.from_pretrained(out_dir / r["model"] / "tokenizer"),
        scheduler=spec["scheduler"], image_processor=CLIPImageProcessorPil(**PIXELS),
        **wan.make_parts(r["model"]))
    pipe.set_progress_bar_config(disable=True)
    if r["loras"]:
        add_loras(pipe, r, d, PEFT_IMAGE, KOHYA_IMAGE, prefix="diffusion_model", merges=True)
    inputs, out, trail = inputs_of(r, d), {}, []
    wan.record_text(pipe, r, wan.rows_of(pipe, [inputs["image"]], spec["dit"]["text_dim"]), out)
    noise = watch(pipe, out)

    def keep(p, step, t, kw):
        trail.append((float(t), kw["latents"].clone()))
        return {}
    frames = pipe(prompt=r["prompts"][0], negative_prompt=r["negative_prompt"],
                  num_inference_steps=r["steps"], guidance_scale=r["guidance"],
                  height=r["height"], width=r["width"], segment_frame_length=r["segment"],
                  prev_segment_conditioning_frames=r["overlap"], motion_encode_batch_size=3,
                  generator=torch.Generator("cpu").manual_seed(r["seed"]), output_type="pt",
                  callback_on_step_end=keep, max_sequence_length=r["max_sequence_length"],
                  **inputs).frames
    keep_frames(name, r, out, trail, noise[0], frames, order=FRAMES_FIRST)
    wan.save(d, name, r, out, 1, {
        "image": 1, "pose_video": 1, "face_video": 1, "segment_frame_length": r["segment"],
        "prev_segment_conditioning_frames": r["overlap"], "num_frames": 0}
        | {key: 1 for key, k in (("control_video", "video"), ("mask_video", "mask")) if k in r})


def make(names, options):
    quiet()
    with torch.no_grad():
        for name in FORMS if "forms" in names else ():
            run_form(name, options.out)
    wan.MODELS |= MODELS
    make_each([n for n in names if n in RUNS], options.out, MODELS, wan.make_model, run)
