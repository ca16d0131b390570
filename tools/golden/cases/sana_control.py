"""SANA with a control network: whole requests, laid out as in sana.py. diffusers has one network in
a request, without other factors in some steps.
"""
import json

import torch
from diffusers import (DPMSolverMultistepScheduler, SanaControlNetModel, SanaControlNetPipeline)

from . import sana
from .lumina2 import load_tokenizer
from ..common import keep_images, make_image, quiet, save_run, say_images, tidy
from ..fill import configure, fill

NAME = "sana-control"
DIT = sana.MODELS["sana"]["dit"] | dict(num_layers=4)
sana.MODELS[NAME] = sana.MODELS["sana"] | dict(dit=DIT)
NETS = {"controlnet": DIT | dict(num_layers=2), "controlnet_2": DIT | dict(num_layers=3)}
RUNS = {
    "sana-control": dict(prompts=["a red star", "a ring"], negative_prompt="a square", width=40,
                         height=56, steps=3, seed=111, guidance=3.0, scale=0.8,
                         net="controlnet", control=(61, 50)),
    "sana-control-more": dict(prompts=["two stars"], negative_prompt="", width=56, height=40,
                              steps=3, seed=112, guidance=1.0, scale=1.0, net="controlnet_2",
                              control=(56, 40)),
}


def make_model(out):
    sana.make_model(NAME, out)
    index = json.loads((out / "model_index.json").read_text())
    index["_class_name"] = "SanaControlNetPipeline"
    index["controlnet"] = ["diffusers", "SanaControlNetModel"]
    for folder, config in NETS.items():
        configure(SanaControlNetModel(**config), out / folder)
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


def load(out, r):
    d = out / NAME
    net = fill(SanaControlNetModel(**NETS[r["net"]]), "bf16", r["net"] + ".")
    pipe = SanaControlNetPipeline(
        scheduler=DPMSolverMultistepScheduler.from_pretrained(d / "scheduler"), controlnet=net,
        tokenizer=load_tokenizer(d / "tokenizer"), **sana.make_parts(NAME))
    pipe.set_progress_bar_config(disable=True)
    pipe.check_inputs = lambda *a, **k: None    # which takes 32 pixels per latent for granted
    return pipe


def run(name, out_dir):
    r = dict(model=NAME, images=1, length=300, instruction=[]) | RUNS[name]
    d, count = out_dir / name, len(r["prompts"])
    d.mkdir(parents=True, exist_ok=True)
    pipe = load(out_dir, r)
    image = make_image(r["control"], r["seed"] + 3000)
    image.save(d / "control.png")
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail = {}, []
    sana.record_text(pipe, r, out)

    def keep(p, step, t, kw):
        trail.append((float(t), kw["latents"].clone()))
        return {}
    made = pipe(list(r["prompts"]), negative_prompt=[r["negative_prompt"]] * count,
                num_inference_steps=r["steps"], guidance_scale=r["guidance"], height=r["height"],
                width=r["width"], control_image=image, generator=gens, output_type="pt",
                controlnet_conditioning_scale=r["scale"], use_resolution_binning=False,
                max_sequence_length=r["length"], complex_human_instruction=r["instruction"],
                callback_on_step_end=keep).images
    keep_images(out, trail, made, r, count)
    save_run(d, name, NAME, {
        "weights": "bf16", "prompts": r["prompts"], "negative_prompt": r["negative_prompt"],
        "width": r["width"], "height": r["height"], "model_width": r["width"],
        "model_height": r["height"], "num_inference_steps": r["steps"],
        "guidance_scale": r["guidance"], "seed": r["seed"], "num_images_per_prompt": 1,
        "images": count, "max_sequence_length": r["length"], "scheduler": None, "tiling": False,
        "resolution_binning": False, "system_prompt": "", "control": 1,
        "controlnets": [r["net"]], "conditioning_scale": f"{r['scale']:g}"}, out)
    say_images(name, r, out, trail, count)


def make(names, options):
    quiet()
    with torch.no_grad():
        for name in names:
            if name == NAME:
                make_model(options.out / name)
            run(name, options.out)
