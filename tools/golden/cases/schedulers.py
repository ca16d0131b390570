"""Pipelines with other schedulers than their own, and with other keys of a scheduler's config.

Writes one request a line into tests/golden/schedulers.json: the model, options by their names in
xd_request_options, and every 7th number of the image's pixels. A pipeline hands its scheduler
sigmas, times, an eta, and latents or tokens; what belongs together shows in whole requests alone.
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
           "flow-lcm": "FlowMatchLCMScheduler"}
# Options that are arguments of the pipeline, not keys of the config.
ARGUMENTS = ("guidance_scale", "true_cfg_scale", "eta")
FLOW = dict(scheduler="unipc", use_flow_sigmas=True)

# A model, steps and options.
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
]


def configure(pipe, options):
    """The scheduler that from_config makes of the pipeline's with these options."""
    keys = {k: v for k, v in options.items() if k not in ARGUMENTS and k != "scheduler"}
    if "use_flow_sigmas" in keys:
        keys["prediction_type"] = "flow_prediction"
    if "flow_shift" in keys:
        keys["use_dynamic_shifting"] = False
    name = CLASSES.get(options.get("scheduler"), type(pipe.scheduler).__name__)
    return getattr(diffusers, name).from_config(pipe.scheduler.config, **keys)


def run(model, steps, options, out):
    pipe = KINDS[model](out)
    pipe.scheduler = configure(pipe, options)
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
    return {"model": model, "options": options | {"num_inference_steps": steps},
            "pixels": pixels.flatten()[::7].tolist()}


def make(names, options):
    quiet()
    rows = []
    for request in REQUESTS:
        rows.append(json.dumps(run(*request, options.out)))
        print(request)
    (options.out / "schedulers.json").write_text("[\n" + ",\n".join(rows) + "\n]\n")
