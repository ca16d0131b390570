"""FLUX.1 with control networks: whole requests, laid out as in joint.py.

The network `controlnet` is for one kind of control images; `controlnet_2` (Union) for three, and it
reads no guidance scale. The blocks of both do not divide those of the transformer, and the last
double block of `controlnet_2` adds nothing. The networks of `flux-controlnet-pixels` read pixels,
as those of XLabs do, in cells of 8 x 8, which its autoencoder has too.
"""
import json

import torch
from diffusers import (FlowMatchEulerDiscreteScheduler, FluxControlNetImg2ImgPipeline,
                       FluxControlNetInpaintPipeline, FluxControlNetModel, FluxControlNetPipeline,
                       FluxMultiControlNetModel)
from transformers import CLIPTextConfig, CLIPTokenizer, T5Tokenizer

from . import joint
from ..common import PLAIN, keep_images, make_image, make_mask, quiet, save_run, say_images, tidy
from ..fill import configure, fill

NAME, PIXELS = "flux-controlnet", "flux-controlnet-pixels"
NET = dict(num_attention_heads=3, **joint.FLUX)
DIT = NET | dict(guidance_embeds=True, num_layers=5, num_single_layers=4)
HINT = NET | dict(guidance_embeds=True, patch_size=2, conditioning_embedding_channels=4)
NETS = {NAME: {"controlnet": NET | dict(guidance_embeds=True, num_layers=2, num_single_layers=0),
               "controlnet_2": NET | dict(guidance_embeds=False, num_layers=4, num_single_layers=2,
                                          num_mode=3)},
        PIXELS: {"controlnet": HINT | dict(num_layers=2, num_single_layers=0),
                 "controlnet_2": HINT | dict(num_layers=3, num_single_layers=2)}}
joint.MODELS[NAME] = dict(seed=69, kind="flux", clip=[joint.CLIP_L], dit=DIT,
                          scheduler=FlowMatchEulerDiscreteScheduler(**joint.DYNAMIC),
                          weights="bf16")
joint.MODELS[PIXELS] = joint.MODELS[NAME] | dict(
    seed=70, vae=joint.VAE | dict(block_out_channels=(8, 8, 8, 12), **PLAIN(4)))
RUNS = {
    "flux-controlnet": dict(prompts=["a red star", "a ring"], width=56, height=40, steps=3,
                            seed=84, guidance=4.0, nets=["controlnet"], control=[(61, 50)],
                            scale=[0.8]),
    "flux-controlnet-union": dict(prompts=["a blue ring"], width=40, height=56, steps=3, seed=85,
                                  guidance=3.0, nets=["controlnet_2"], control=[(40, 56)],
                                  scale=[1.0], mode=[2]),
    "flux-controlnet-two": dict(prompts=["two stars"], width=48, height=48, steps=5, seed=86,
                                guidance=3.5, nets=["controlnet_2", "controlnet_2"],
                                control=[(30, 44), (48, 48)], scale=[0.7, 1.3], mode=[0, 1],
                                start=[0.2, 0.0], end=[0.8, 0.6]),
    "flux-controlnet-image": dict(prompts=["a star"], width=48, height=40, steps=5, seed=87,
                                  guidance=7.0, nets=["controlnet"], control=[(50, 50)],
                                  scale=[0.9], image=(50, 61), strength=0.6),
    # The mask and the images have sizes of their own.
    "flux-controlnet-mask": dict(prompts=["a ring"], width=40, height=48, steps=5, seed=90,
                                 guidance=7.0, nets=["controlnet_2"], control=[(44, 40)],
                                 scale=[0.9], mode=[1], image=(61, 50), mask=(30, 44),
                                 strength=0.7),
    "flux-controlnet-pixels-mask": dict(prompts=["a star"], width=64, height=48, steps=5, seed=91,
                                        guidance=5.0, nets=["controlnet"], control=[(64, 48)],
                                        scale=[0.8], end=[0.7], start=[0.0], image=(64, 48),
                                        mask=(64, 48), strength=0.8),
    "flux-controlnet-pixels": dict(prompts=["a red star", "a ring"], width=80, height=48, steps=3,
                                   seed=88, guidance=4.0, nets=["controlnet"],
                                   control=[(61, 50)], scale=[0.8]),
    "flux-controlnet-pixels-two": dict(prompts=["two stars"], width=48, height=64, steps=4,
                                       seed=89, guidance=3.5,
                                       nets=["controlnet_2", "controlnet_2"],
                                       control=[(30, 44), (48, 64)], scale=[0.7, 1.3],
                                       start=[0.2, 0.0], end=[1.0, 0.8]),
}


def make_nets(model):
    return {folder: fill(FluxControlNetModel(**config), "bf16", folder + ".")
            for folder, config in NETS[model].items()}


def make_model(model, out):
    joint.make_model(model, out)
    index = json.loads((out / "model_index.json").read_text())
    index["_class_name"] = "FluxControlNetPipeline"
    index["controlnet"] = ["diffusers", "FluxControlNetModel"]
    for folder, net in make_nets(model).items():
        configure(net, out / folder)
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


def load(out, model, nets, kind):
    parts, made = joint.make_parts(model), make_nets(model)
    for folder in [f for f in parts if f.startswith("text_encoder")]:
        clip = isinstance(parts[folder].config, CLIPTextConfig)
        tokenizer = folder.replace("text_encoder", "tokenizer")
        parts[tokenizer] = (CLIPTokenizer if clip else T5Tokenizer).from_pretrained(
            out / model / tokenizer)
    chosen = [made[n] for n in nets]
    pipe = kind(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(out / model / "scheduler"),
        controlnet=chosen[0] if len(chosen) == 1 else FluxMultiControlNetModel(chosen), **parts)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def run(name, out_dir):
    model = PIXELS if name.startswith(PIXELS) else NAME
    r = dict(model=model, images=1, true_cfg=0.0, max_sequence_length=9, more={}, strength=0.0,
             negative_prompt="") | RUNS[name]
    d, n = out_dir / name, len(r["nets"])
    d.mkdir(parents=True, exist_ok=True)
    kind = (FluxControlNetInpaintPipeline if "mask" in r else FluxControlNetImg2ImgPipeline
            if r["strength"] else FluxControlNetPipeline)
    pipe = load(out_dir, r["model"], r["nets"], kind)
    images = [make_image(size, r["seed"] + 3000 + i) for i, size in enumerate(r["control"])]
    for i, image in enumerate(images):
        image.save(d / ("control_2.png" if i else "control.png"))
    start, end, count = r.get("start", [0.0] * n), r.get("end", [1.0] * n), len(r["prompts"])
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail, more = {}, [], {}
    joint.record_text(pipe, r, out)

    def keep(p, step, t, kw):
        z = kw["latents"]
        trail.append((float(t), p._unpack_latents(z, r["height"], r["width"],
                                                  p.vae_scale_factor).clone()))
        return {}
    one = lambda v: v if n > 1 else v[0]
    if "mode" in r:
        more["control_mode"] = one(r["mode"])
    if r["strength"]:
        more |= dict(image=make_image(r["image"], r["seed"] + 2000), strength=r["strength"])
        more["image"].save(d / "image.png")
    if "mask" in r:
        more["mask_image"] = make_mask(r["mask"])
        more["mask_image"].save(d / "mask.png")
    # several images of one request are requests here: a network reads one image and mode
    made = []
    for i, prompt in enumerate(r["prompts"]):
        made.append(pipe(prompt, height=r["height"], width=r["width"],
                         num_inference_steps=r["steps"], guidance_scale=r["guidance"],
                         control_image=one(images), controlnet_conditioning_scale=one(r["scale"]),
                         control_guidance_start=start, control_guidance_end=end,
                         generator=gens[i], max_sequence_length=r["max_sequence_length"],
                         output_type="pt", callback_on_step_end=keep, **more).images)
    steps = len(trail) // count
    trail = [(trail[i][0], torch.cat([trail[k * steps + i][1] for k in range(count)]))
             for i in range(steps)]
    keep_images(out, trail, torch.cat(made), r, count, False, not r["strength"])
    text = lambda v: ",".join(f"{x:g}" for x in v)
    notes = {"control": n, "conditioning_scale": text(r["scale"]), "controlnets": r["nets"]}
    if "start" in r:
        notes |= {"control_guidance_start": text(start), "control_guidance_end": text(end)}
    if "mask" in r:
        notes["mask"] = True
    if "mode" in r:
        notes["control_mode"] = text(r["mode"])
    save_run(d, name, r["model"], {
        "weights": "bf16", "prompts": r["prompts"], "negative_prompt": "",
        "width": r["width"], "height": r["height"], "model_width": r["width"],
        "model_height": r["height"], "num_inference_steps": r["steps"],
        "guidance_scale": r["guidance"], "true_cfg_scale": 0.0, "seed": r["seed"],
        "num_images_per_prompt": 1, "images": count, "strength": r["strength"],
        "max_sequence_length": r["max_sequence_length"], "scheduler": None, "tiling": False,
        "resolution_binning": False} | notes, out)
    say_images(name, r, out, trail, count)


def make(names, options):
    quiet()
    with torch.no_grad():
        for name in names:
            if name in NETS:
                make_model(name, options.out / name)
            run(name, options.out)
