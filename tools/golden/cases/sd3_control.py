"""Stable Diffusion 3 with control networks: whole requests, laid out as in joint.py.

The network `controlnet` has text and the positions of its own, and reads zeros as pooled text;
`controlnet_2` has neither text nor positions, like those of Stable Diffusion 3.5 large. Latents of
a control image are the mean, where diffusers draws without a seed.
"""
import json
from types import SimpleNamespace

import torch
from diffusers import (FlowMatchEulerDiscreteScheduler, SD3ControlNetModel,
                       StableDiffusion3ControlNetPipeline)
from transformers import CLIPTextConfig, CLIPTokenizer, T5EncoderModel, T5Tokenizer

from . import joint
from ..common import keep_images, make_image, quiet, save_run, say_images, tidy
from ..fill import configure, fill

NAME = "sd3-control"
DIT = dict(num_attention_heads=3, caption_projection_dim=24, **joint.SD3 | dict(num_layers=5))
NET = {k: v for k, v in DIT.items() if k != "sample_size"} | {"sample_size": 16}
NETS = {"controlnet": NET | dict(num_layers=3),
        "controlnet_2": NET | dict(joint_attention_dim=None, pos_embed_max_size=None,
                                   pos_embed_type=None, use_pos_embed=False,
                                   force_zeros_for_pooled_projection=False)}
joint.MODELS[NAME] = dict(seed=68, kind="sd3", clip=[joint.CLIP_L, joint.CLIP_G], dit=DIT,
                          scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0), weights="bf16")
RUNS = {
    "sd3-control": dict(prompts=["a red star", "a ring"], negative_prompt="a small square",
                        width=56, height=40, steps=3, seed=81, guidance=4.0, nets=["controlnet"],
                        control=[(61, 50)], scale=[0.8]),
    "sd3-control-single": dict(prompts=["a blue ring"], negative_prompt="a star", width=40,
                               height=56, steps=3, seed=82, guidance=4.0, nets=["controlnet_2"],
                               control=[(40, 56)], scale=[1.0]),
    "sd3-control-two": dict(prompts=["two stars"], negative_prompt="", width=48, height=48,
                            steps=5, seed=83, guidance=1.0, nets=["controlnet", "controlnet"],
                            control=[(30, 44), (48, 48)], scale=[0.7, 1.3], start=[0.2, 0.0],
                            end=[0.8, 0.6]),
}


def make_nets():
    return {folder: fill(SD3ControlNetModel(**config), "bf16", folder + ".")
            for folder, config in NETS.items()}


def make_model(out):
    joint.make_model(NAME, out)
    index = json.loads((out / "model_index.json").read_text())
    index["_class_name"] = "StableDiffusion3ControlNetPipeline"
    index["controlnet"] = ["diffusers", "SD3ControlNetModel"]
    for folder, net in make_nets().items():
        configure(net, out / folder)
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


def load(out, nets):
    parts, made = joint.make_parts(NAME), make_nets()
    for folder in [f for f in parts if f.startswith("text_encoder")]:
        clip = isinstance(parts[folder].config, CLIPTextConfig)
        tokenizer = folder.replace("text_encoder", "tokenizer")
        parts[tokenizer] = (CLIPTokenizer if clip else T5Tokenizer).from_pretrained(
            out / NAME / tokenizer)
    assert isinstance(parts["text_encoder_3"], T5EncoderModel)
    chosen = [made[n] for n in nets]
    pipe = StableDiffusion3ControlNetPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(out / NAME / "scheduler"),
        controlnet=chosen[0] if len(chosen) == 1 else chosen, **parts)
    pipe.set_progress_bar_config(disable=True)
    encode = pipe.vae.encode

    def encode_mean(x):
        latents = encode(x).latent_dist.mode()
        return SimpleNamespace(latent_dist=SimpleNamespace(sample=lambda: latents))
    pipe.vae.encode = encode_mean
    return pipe


def run(name, out_dir):
    r = dict(model=NAME, images=1, true_cfg=0.0, max_sequence_length=9, more={}) | RUNS[name]
    d, n = out_dir / name, len(r["nets"])
    d.mkdir(parents=True, exist_ok=True)
    pipe = load(out_dir, r["nets"])
    images = [make_image(size, r["seed"] + 3000 + i) for i, size in enumerate(r["control"])]
    for i, image in enumerate(images):
        image.save(d / ("control_2.png" if i else "control.png"))
    start, end, count = r.get("start", [0.0] * n), r.get("end", [1.0] * n), len(r["prompts"])
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail = {}, []
    joint.record_text(pipe, r, out)

    def keep(p, step, t, kw):
        trail.append((float(t), kw["latents"].clone()))
        return {}
    made = pipe(r["prompts"], negative_prompt=[r["negative_prompt"]] * count,
                height=r["height"], width=r["width"], num_inference_steps=r["steps"],
                guidance_scale=r["guidance"], control_image=images if n > 1 else images[0],
                controlnet_conditioning_scale=r["scale"] if n > 1 else r["scale"][0],
                control_guidance_start=start, control_guidance_end=end, generator=gens,
                max_sequence_length=r["max_sequence_length"], output_type="pt",
                callback_on_step_end=keep).images
    keep_images(out, trail, made, r, count)
    text = lambda v: ",".join(f"{x:g}" for x in v)
    notes = {"control": n, "conditioning_scale": text(r["scale"]), "controlnets": r["nets"]}
    if "start" in r:
        notes |= {"control_guidance_start": text(start), "control_guidance_end": text(end)}
    save_run(d, name, NAME, {
        "weights": "bf16", "prompts": r["prompts"], "negative_prompt": r["negative_prompt"],
        "width": r["width"], "height": r["height"], "model_width": r["width"],
        "model_height": r["height"], "num_inference_steps": r["steps"],
        "guidance_scale": r["guidance"], "true_cfg_scale": 0.0, "seed": r["seed"],
        "num_images_per_prompt": 1, "images": count,
        "max_sequence_length": r["max_sequence_length"], "scheduler": None, "tiling": False,
        "resolution_binning": False} | notes, out)
    say_images(name, r, out, trail, count)


def make(names, options):
    quiet()
    with torch.no_grad():
        for name in names:
            if name == NAME:
                make_model(options.out / name)
            run(name, options.out)
