"""Z-Image with control networks: whole requests, laid out as in zimage.py.

The network `controlnet` is of the first version, `controlnet_2` of version 2.1, which has hints in
the noise refiner, and `controlnet_3` of version 2.0, whose blocks also refine. diffusers has one
network in a request; the case of two adds what both compute.
"""
import json

import torch
from diffusers import (FlowMatchEulerDiscreteScheduler, ZImageControlNetInpaintPipeline,
                       ZImageControlNetModel, ZImageControlNetPipeline)

from . import zimage
from ..common import keep_images, make_image, make_mask, quiet, save_run, say_images, tidy
from ..fill import configure, fill

NAME = "zimage-control"
zimage.MODELS[NAME] = dict(dit=dict(dim=24, n_heads=3, n_kv_heads=3, n_layers=5,
                                    axes_dims=[4, 2, 2], **zimage.DIT), weights="bf16")
NET = dict(dim=24, n_heads=3, n_kv_heads=3, n_refiner_layers=2)
NETS = {"controlnet": NET | dict(control_in_dim=4, control_layers_places=[0, 2]),
        "controlnet_2": NET | dict(control_in_dim=9, control_layers_places=[0, 1, 4],
                                   control_refiner_layers_places=[0, 1],
                                   add_control_noise_refiner="control_noise_refiner"),
        "controlnet_3": NET | dict(control_in_dim=9, control_layers_places=[0, 1, 2],
                                   control_refiner_layers_places=[0, 1],
                                   add_control_noise_refiner="control_layers")}
RUNS = {
    "zimage-control": dict(prompts=["a red star", "a ring"], negative_prompt="a small square",
                           width=56, height=40, steps=3, seed=91, guidance=3.0,
                           nets=["controlnet"], control=[(61, 50)]),
    "zimage-control-hints": dict(prompts=["a blue ring"], negative_prompt="a star", width=40,
                                 height=56, steps=3, seed=92, guidance=2.0,
                                 nets=["controlnet_2"], control=[(40, 56)], scale=[0.9]),
    "zimage-control-repeats": dict(prompts=["two stars"], negative_prompt="", width=64, height=64,
                                   steps=3, seed=93, guidance=0.0, nets=["controlnet_3"],
                                   control=[(30, 44)], scale=[1.0]),
    "zimage-control-two": dict(prompts=["a cyan triangle"], negative_prompt="", width=48,
                               height=40, steps=3, seed=94, guidance=0.0,
                               nets=["controlnet", "controlnet_2"],
                               control=[(30, 44), (48, 48)], scale=[0.7, 1.3]),
    "zimage-control-fill": dict(prompts=["a star"], negative_prompt="", width=56, height=40,
                                steps=3, seed=95, guidance=1.5, nets=["controlnet_2"],
                                control=[(56, 40)], image=(70, 37), mask=(40, 48)),
}


class Sum(torch.nn.Module):
    """Networks with an image and a factor each, in the place of one network."""
    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self, nets, scales):
        super().__init__()
        self.nets, self.scales, self.images = torch.nn.ModuleList(nets), scales, None
        self.config = nets[0].config

    def forward(self, x, t, text, control, conditioning_scale):
        total = {}
        for net, image, scale in zip(self.nets, self.images, self.scales):
            more = net.config.control_in_dim - image.shape[1]
            image = torch.nn.functional.pad(image, (0, 0, 0, 0, 0, 0, 0, more))
            hints = net(list(x), t, list(text), [image[0]] * len(x), conditioning_scale=scale)
            for place, hint in hints.items():
                total[place] = total.get(place, 0) + hint
        return total


def make_model(out):
    zimage.make_model(NAME, out)
    index = json.loads((out / "model_index.json").read_text())
    index["_class_name"] = "ZImageControlNetPipeline"
    index["controlnet"] = ["diffusers", "ZImageControlNetModel"]
    for folder, config in NETS.items():
        configure(ZImageControlNetModel(**config), out / folder)
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


def load(out, r):
    d = out / NAME
    parts = zimage.make_parts(NAME)
    nets = [fill(ZImageControlNetModel(**NETS[n]), "bf16", n + ".") for n in r["nets"]]
    pipe = (ZImageControlNetInpaintPipeline if "mask" in r else ZImageControlNetPipeline)(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(d / "scheduler"),
        tokenizer=zimage.load_tokenizer(d / "tokenizer"), controlnet=nets[0], **parts)
    for net in nets[1:]:
        ZImageControlNetModel.from_transformer(net, pipe.transformer)
    if len(nets) > 1:
        pipe.controlnet = Sum(nets, r["scale"])
    pipe.set_progress_bar_config(disable=True)
    return pipe


def latents_of(pipe, image, r):
    pixels = pipe.image_processor.preprocess(image, height=r["height"], width=r["width"])
    mean = pipe.vae.encode(pixels).latent_dist.mode()
    return ((mean - pipe.vae.config.shift_factor) * pipe.vae.config.scaling_factor).unsqueeze(2)


def run(name, out_dir):
    r = dict(images=1, length=512) | RUNS[name]
    d, n, count = out_dir / name, len(r["nets"]), len(r["prompts"])
    d.mkdir(parents=True, exist_ok=True)
    pipe = load(out_dir, r)
    images = [make_image(size, r["seed"] + 3000 + i) for i, size in enumerate(r["control"])]
    for i, image in enumerate(images):
        image.save(d / ("control_2.png" if i else "control.png"))
    if n > 1:
        pipe.controlnet.images = [latents_of(pipe, image, r) for image in images]
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail = {}, []
    zimage.record_text(pipe, r, out)

    def keep(p, step, t, kw):
        trail.append((float(t), kw["latents"].clone()))
        return {}
    more = dict(controlnet_conditioning_scale=r["scale"][0]) if "scale" in r else {}
    if "mask" in r:
        more |= dict(image=make_image(r["image"], r["seed"] + 2000),
                     mask_image=make_mask(r["mask"]))
        more["image"].save(d / "image.png")
        more["mask_image"].save(d / "mask.png")
    made = pipe(list(r["prompts"]), negative_prompt=[r["negative_prompt"]] * count,
                num_inference_steps=r["steps"], guidance_scale=r["guidance"], height=r["height"],
                width=r["width"], control_image=images[0], generator=gens, output_type="pt",
                max_sequence_length=r["length"], callback_on_step_end=keep, **more).images
    keep_images(out, trail, made, r, count)
    notes = {"control": n, "controlnets": r["nets"]}
    if "mask" in r:
        notes |= {"mask": True, "image": 1}
    if "scale" in r:
        notes["conditioning_scale"] = ",".join(f"{x:g}" for x in r["scale"])
    save_run(d, name, NAME, {
        "weights": "bf16", "prompts": r["prompts"], "negative_prompt": r["negative_prompt"],
        "width": r["width"], "height": r["height"], "model_width": r["width"],
        "model_height": r["height"], "num_inference_steps": r["steps"],
        "guidance_scale": r["guidance"], "seed": r["seed"], "num_images_per_prompt": 1,
        "images": count, "max_sequence_length": r["length"], "scheduler": None, "tiling": False,
        "resolution_binning": False} | notes, out)
    say_images(name, r, out, trail, count)


def make(names, options):
    quiet()
    with torch.no_grad():
        for name in names:
            if name == NAME:
                make_model(options.out / name)
            run(name, options.out)
