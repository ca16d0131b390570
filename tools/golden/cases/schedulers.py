"""Pipelines with other schedulers than their own, and with other keys of a scheduler's config.

Writes one request a line into tests/golden/schedulers.json: the model, options by their names in
xd_request_options, the config of its scheduler where it is not the model's, and every 7th number of
the image's pixels. A pipeline hands its scheduler sigmas, times, an eta, and latents or tokens;
what belongs together shows in whole requests alone.
"""
import json

import diffusers
import numpy as np
import torch
from PIL import Image

from ..common import quiet
from . import chroma, flux2, hunyuan, joint, pixart, qwen

KINDS = {"alpha": lambda out: pixart.load("alpha", out),
         "hunyuan": lambda out: hunyuan.load("hunyuan", out),
         "flux": lambda out: joint.load("flux", out, False, False),
         "kontext": lambda out: joint.load("kontext", out, False, False),
         "sd3": lambda out: joint.load("sd3", out, False, False),
         "chroma": lambda out: chroma.load("chroma", out, False),
         "qwen": lambda out: qwen.load("qwen", out, False, False),
         "flux2-klein": lambda out: flux2.load("flux2-klein", out)}
CLASSES = {"ddim": "DDIMScheduler", "tcd": "TCDScheduler", "dpm++": "DPMSolverMultistepScheduler",
           "dpm++-single": "DPMSolverSinglestepScheduler", "unipc": "UniPCMultistepScheduler",
           "flow-lcm": "FlowMatchLCMScheduler", "flow-heun": "FlowMatchHeunDiscreteScheduler"}
# Options that are arguments of the pipeline, not keys of the config.
ARGUMENTS = ("guidance_scale", "true_cfg_scale", "eta")
FLOW = dict(scheduler="unipc", use_flow_sigmas=True)
UNIPC = {"_class_name": "UniPCMultistepScheduler"}
FOLDER = UNIPC | dict(use_flow_sigmas=True, prediction_type="flow_prediction")
LCM = {"_class_name": "FlowMatchLCMScheduler", "shift_terminal": 0.02}
DEIS = {"_class_name": "DEISMultistepScheduler", "solver_type": "heun"}

# A model, steps, options, and a config of the scheduler in place of the model's.
REQUESTS = [
    # One step more than asked, whose time is -1.
    ("alpha", 61, dict(scheduler="ddim", timestep_spacing="trailing", guidance_scale=4.5)),
    # The schedulers of a config with variance_type fixed_small; the pipelines' eta is 0.
    ("hunyuan", 3, dict(scheduler="dpm++", guidance_scale=4.0)),
    ("hunyuan", 3, dict(scheduler="dpm++-single", guidance_scale=4.0)),
    ("hunyuan", 3, dict(scheduler="tcd", guidance_scale=4.0)),
    ("alpha", 3, dict(scheduler="tcd", guidance_scale=4.5)),
    ("alpha", 3, dict(scheduler="tcd", guidance_scale=4.5, eta=0.7)),
    # Noise of steps: of tokens, and of latents.
    ("flux", 3, dict(scheduler="flow-lcm")),
    ("kontext", 3, dict(stochastic_sampling=True)),
    ("chroma", 3, dict(scheduler="flow-lcm", guidance_scale=3.0)),
    ("qwen", 3, dict(stochastic_sampling=True)),
    ("flux2-klein", 3, dict(scheduler="flow-lcm")),
    ("sd3", 3, dict(stochastic_sampling=True, guidance_scale=3.0)),
    # The pipeline's own sigmas, or none.
    ("flux", 4, FLOW), ("kontext", 4, FLOW), ("flux2-klein", 4, FLOW), ("qwen", 4, FLOW),
    ("chroma", 4, FLOW | dict(guidance_scale=3.0)),
    ("chroma", 4, FLOW | dict(guidance_scale=3.0, flow_shift=3.0)),
    ("sd3", 4, FLOW | dict(guidance_scale=3.0, flow_shift=2.0)),
    # New noise in every step, also in one more than asked.
    ("alpha", 3, dict(scheduler="ddim", guidance_scale=4.5, eta=1.0)),
    ("hunyuan", 4, dict(scheduler="ddim", guidance_scale=4.0, eta=0.4)),
    ("alpha", 61, dict(guidance_scale=4.5, eta=0.8),
     {"_class_name": "DDIMScheduler", "set_alpha_to_one": False, "timestep_spacing": "trailing"}),
    # No class reads an eta from its config.
    ("alpha", 3, dict(guidance_scale=4.5), {"_class_name": "TCDScheduler", "eta": 0.5}),
    # The folder's class has replaced a solver that belongs to another class.
    ("alpha", 3, dict(scheduler="dpm++", guidance_scale=4.5), UNIPC | dict(solver_type="heun")),
    ("alpha", 3, dict(scheduler="unipc", guidance_scale=4.5),
     {"_class_name": "DPMSolverMultistepScheduler", "solver_type": "bh1"}),
    ("alpha", 3, dict(scheduler="dpm++", guidance_scale=4.5), DEIS),
    # Whole times that a rounding error moves by one.
    ("sd3", 3, dict(scheduler="dpm++", guidance_scale=3.0), FOLDER),
    ("sd3", 3, dict(scheduler="dpm++-single", guidance_scale=3.0), FOLDER),
    ("chroma", 3, dict(guidance_scale=3.0), FOLDER | dict(flow_shift=2.0)),
    # Keys that the class does not have, or does not read.
    ("sd3", 3, dict(scheduler="flow-heun", guidance_scale=3.0), LCM),
    ("sd3", 3, dict(guidance_scale=3.0), FOLDER | dict(time_shift_type="linear")),
]


def configure(pipe, options, config):
    """The scheduler that from_config makes of the pipeline's, or of the config's, with these
    options."""
    keys = {k: v for k, v in options.items() if k not in ARGUMENTS and k != "scheduler"}
    if "use_flow_sigmas" in keys:
        keys["prediction_type"] = "flow_prediction"
    if "flow_shift" in keys:
        keys["use_dynamic_shifting"] = False
    own = pipe.scheduler
    if config:
        own = getattr(diffusers, config["_class_name"]).from_config(config)
    name = CLASSES.get(options.get("scheduler"), type(own).__name__)
    return getattr(diffusers, name).from_config(own.config, **keys)


def run(out, model, steps, options, config=None):
    pipe = KINDS[model](out)
    pipe.scheduler = configure(pipe, options, config)
    more = {k: v for k, v in options.items() if k in ARGUMENTS}
    if model in ("alpha", "hunyuan"):
        more["use_resolution_binning"] = False
    if model == "kontext":              # without an image
        more["max_area"] = 48 * 32
    if model == "qwen":
        more["true_cfg_scale"] = 1.0
    torch.manual_seed(7)
    image = pipe(prompt="a red star", width=48, height=32, num_inference_steps=steps,
                 output_type="pil", **more).images[0]
    assert isinstance(image, Image.Image)
    pixels = np.asarray(image)
    options = {k: v for k, v in more.items() if k != "use_resolution_binning"} | options
    row = {"model": model, "options": options | {"num_inference_steps": steps}}
    if config:                          # the text of a file
        row["config"] = json.dumps(config)
    return row | {"pixels": pixels.flatten()[::7].tolist()}


def make(names, options):
    quiet()
    rows = []
    for request in REQUESTS:
        rows.append(json.dumps(run(options.out, *request)))
        print(request)
    (options.out / "schedulers.json").write_text("[\n" + ",\n".join(rows) + "\n]\n")
