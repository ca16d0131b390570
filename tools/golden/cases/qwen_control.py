"""Qwen-Image with control networks: whole requests, laid out as in qwen.py.

`controlnet` and `controlnet_2` are like InstantX's Union, `controlnet_3` like its network for
inpainting, which reads a mask, too. With guidance, the control network reads the text of each pass,
whereas diffusers adds what it computes for the prompt to both passes. Latents of a control image to
inpaint are the mean, where diffusers draws without a seed.
"""
import json
from types import SimpleNamespace

import torch
from diffusers import (FlowMatchEulerDiscreteScheduler, QwenImageControlNetInpaintPipeline,
                       QwenImageControlNetModel,
                       QwenImageControlNetPipeline, QwenImageMultiControlNetModel)

from . import qwen
from .flux2 import load_tokenizer
from ..common import keep_images, make_image, make_mask, quiet, save_run, say_images, tidy
from ..fill import configure, fill

NAME = "qwen-control"
qwen.MODELS[NAME] = dict(weights="bf16", dit=dict(num_attention_heads=3, num_layers=5, **qwen.DIT))
NET = dict(num_attention_heads=3, num_layers=2, **qwen.DIT)
NETS = {"controlnet": NET, "controlnet_2": NET | dict(num_layers=3),
        "controlnet_3": NET | dict(extra_condition_channels=4)}
RUNS = {
    "qwen-control": dict(prompts=["a red star", "a ring"], negative="a square", true_cfg=3.0,
                         width=40, height=56, steps=3, seed=101, scale=[0.8],
                         control=[(61, 50)]),
    "qwen-control-two": dict(prompts=["two stars"], width=48, height=48, steps=5, seed=102,
                             control=[(30, 44), (48, 48)], scale=[0.7, 1.3], start=[0.2, 0.0],
                             end=[0.8, 0.6]),
    "qwen-control-mask": dict(prompts=["a ring"], width=56, height=40, steps=3, seed=103,
                              control=[(61, 50)], mask=(40, 48), scale=[0.9]),
}


def make_model(out):
    qwen.make_model(NAME, out)
    index = json.loads((out / "model_index.json").read_text())
    index["_class_name"] = "QwenImageControlNetPipeline"
    index["controlnet"] = ["diffusers", "QwenImageControlNetModel"]
    for folder, config in NETS.items():
        configure(QwenImageControlNetModel(**config), out / folder)
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


def control_each_pass(pipe):
    """The pass of the negative prompt gets what the network computes for the negative prompt."""
    run_control, run_main, last = pipe.controlnet.forward, pipe.transformer.forward, {}

    def control(*args, **kw):
        last.update(kw)
        return run_control(*args, **kw)

    def main(*args, **kw):
        if kw["encoder_hidden_states"] is not last["encoder_hidden_states"]:
            text = {k: kw[k] for k in ("encoder_hidden_states", "encoder_hidden_states_mask")}
            kw["controlnet_block_samples"] = run_control(**(last | text))
        return run_main(*args, **kw)
    pipe.controlnet.forward, pipe.transformer.forward = control, main


def load(out, r):
    d, folder = out / NAME, "controlnet_3" if "mask" in r else "controlnet"
    kind = QwenImageControlNetInpaintPipeline if "mask" in r else QwenImageControlNetPipeline
    net = fill(QwenImageControlNetModel(**NETS[folder]), "bf16", folder + ".")
    pipe = kind(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(d / "scheduler"),
        tokenizer=load_tokenizer(d / "tokenizer", False),
        controlnet=net if len(r["control"]) == 1 else QwenImageMultiControlNetModel([net]),
        **qwen.make_parts(NAME))
    pipe.set_progress_bar_config(disable=True)
    if "negative" in r:
        control_each_pass(pipe)
    if "mask" in r:
        encode = pipe.vae.encode

        def encode_mean(x):
            latents = encode(x).latent_dist.mode()
            return SimpleNamespace(latent_dist=SimpleNamespace(sample=lambda: latents))
        pipe.vae.encode = encode_mean
    return pipe


def run(name, out_dir):
    r = dict(images=1, true_cfg=1.0, max_sequence_length=200) | RUNS[name]
    d, n, count = out_dir / name, len(r["control"]), len(r["prompts"])
    d.mkdir(parents=True, exist_ok=True)
    pipe = load(out_dir, r)
    images = [make_image(size, r["seed"] + 3000 + i) for i, size in enumerate(r["control"])]
    for i, image in enumerate(images):
        image.save(d / ("control_2.png" if i else "control.png"))
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail, more = {}, [], {}
    qwen.record_text(pipe, r, out)
    if "negative" in r:
        more = dict(negative_prompt=[r["negative"]] * count, true_cfg_scale=r["true_cfg"])
    if "start" in r:
        more |= dict(control_guidance_start=r["start"], control_guidance_end=r["end"])

    if "mask" in r:
        more["control_mask"] = make_mask(r["mask"])
        more["control_mask"].save(d / "mask.png")

    def keep(p, step, t, kw):
        z = p._unpack_latents(kw["latents"], r["height"], r["width"], p.vae_scale_factor)
        trail.append((float(t), z[:, :, 0].clone()))
        return {}
    made = pipe(prompt=r["prompts"], num_inference_steps=r["steps"], height=r["height"],
                width=r["width"], control_image=images if n > 1 else images[0],
                controlnet_conditioning_scale=r["scale"] if n > 1 else r["scale"][0],
                generator=gens, output_type="pt", max_sequence_length=r["max_sequence_length"],
                callback_on_step_end=keep, **more).images
    keep_images(out, trail, made, r, count, False)
    text = lambda v: ",".join(f"{x:g}" for x in v)
    notes = {"control": n, "controlnets": ["controlnet_3" if "mask" in r else "controlnet"] * n,
             "conditioning_scale": text(r["scale"])}
    if "mask" in r:
        notes |= {"mask": True}
    if "start" in r:
        notes |= {"control_guidance_start": text(r["start"]),
                  "control_guidance_end": text(r["end"])}
    save_run(d, name, NAME, {
        "weights": "bf16", "prompts": r["prompts"], "negative_prompt": r.get("negative", ""),
        "width": r["width"], "height": r["height"], "model_width": r["width"],
        "model_height": r["height"], "num_inference_steps": r["steps"], "guidance_scale": 1.0,
        "true_cfg_scale": r["true_cfg"], "seed": r["seed"], "num_images_per_prompt": 1,
        "images": count, "max_sequence_length": r["max_sequence_length"], "scheduler": None,
        "tiling": False, "resolution_binning": False} | notes, out)
    say_images(name, r, out, trail, count)


def make(names, options):
    quiet()
    with torch.no_grad():
        for name in names:
            if name == NAME:
                make_model(options.out / name)
            run(name, options.out)
