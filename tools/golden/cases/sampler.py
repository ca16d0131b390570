"""Trajectories of diffusers' schedulers for tests/unit/test_sampler.c.

A pseudo model, prediction = 0.3 x + 0.1 sin(t / 100), stands in for the network. Writes one case a
line into tests/golden/sampler.json: the class, its config, the steps asked for, the timesteps, the
scale of the initial noise, the latents at the end and the largest value on the way; of schedulers
that draw noise also the number that comes after all of theirs. Cases with a path have the first and
the last of the latents after every step. Beta sigmas need scipy.
"""
import inspect
import json
import math
import random

import diffusers
import numpy
import torch

DPM, DDIM, EULER = "DPMSolverMultistepScheduler", "DDIMScheduler", "EulerDiscreteScheduler"
DDPM = "DDPMScheduler"
FLOW = "FlowMatchEulerDiscreteScheduler"
UNIPC = "UniPCMultistepScheduler"
ANCESTRAL, HEUN = "EulerAncestralDiscreteScheduler", "HeunDiscreteScheduler"
SINGLE = "DPMSolverSinglestepScheduler"
PNDM = "PNDMScheduler"
LCM, TCD = "LCMScheduler", "TCDScheduler"
FLOWHEUN, FLOWLCM = "FlowMatchHeunDiscreteScheduler", "FlowMatchLCMScheduler"
POINTS = "MiniMaxH3Scheduler"
COG, COGDPM = "CogVideoXDDIMScheduler", "CogVideoXDPMScheduler"
START = [1.5, -0.7, 0.2, -2.1, 0.9, 3.0, -0.05, 0.6]
IMAGE = [0.8, -1.1, 0.3, 0.05, -0.6, 1.2, 0.7, -0.4]
COUNTS = [1, 2, 3, 5, 14, 15, 20, 50]
COG_COUNTS = [1, 2, 3, 7, 50]
PATH_COUNTS = [1, 2, 4, 7, 20, 50]
SEED = 7
PATHS = [UNIPC]
PIXART = {"beta_schedule": "linear", "beta_start": 0.0001, "beta_end": 0.02}
SD = {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012}
COSINE = {"beta_schedule": "squaredcos_cap_v2"}
COG5B = {**SD, "prediction_type": "v_prediction", "rescale_betas_zero_snr": True,
         "snr_shift_scale": 1.0, "timestep_spacing": "trailing", "clip_sample": False}

CONFIGS = [
    (DPM, {}), (DPM, {"solver_order": 1}), (DPM, {"solver_order": 3}),
    (DPM, {"solver_type": "heun"}), (DPM, {"solver_order": 3, "solver_type": "heun"}),
    (DPM, {"lower_order_final": False}), (DPM, {"solver_order": 3, "lower_order_final": False}),
    (DPM, {"euler_at_final": True, "final_sigmas_type": "sigma_min"}),
    (DPM, {"final_sigmas_type": "sigma_min"}),
    (DPM, {"final_sigmas_type": "sigma_min", "lower_order_final": False, "solver_order": 3}),
    (DPM, {"use_karras_sigmas": True}), (DPM, {"use_karras_sigmas": True, **SD}),
    (DPM, {"use_exponential_sigmas": True}), (DPM, {"use_lu_lambdas": True}),
    (DPM, {"timestep_spacing": "leading", "steps_offset": 1}),
    (DPM, {"timestep_spacing": "trailing"}),
    (DPM, {"prediction_type": "v_prediction", **SD}), (DPM, {"prediction_type": "sample"}),
    (DPM, {**COSINE, "lambda_min_clipped": -5.1}), (DPM, {**COSINE, "use_karras_sigmas": True}),
    (DPM, {"rescale_betas_zero_snr": True, "prediction_type": "v_prediction", **SD,
           "timestep_spacing": "trailing"}),
    (DPM, {"use_flow_sigmas": True, "flow_shift": 3.0, "prediction_type": "flow_prediction"}),
    (DPM, {"use_flow_sigmas": True, "prediction_type": "flow_prediction",
           "use_dynamic_shifting": True, "most": 1.16, "tokens": 1500}),
    (DPM, {"use_flow_sigmas": True, "prediction_type": "flow_prediction",
           "use_dynamic_shifting": True, "most": 1.15,
           "max_shift": 0.9, "base_shift": 0.3, "max_image_seq_len": 1024, "tokens": 77}),
    (DPM, {"algorithm_type": "deis", "solver_type": "bh2", "final_sigmas_type": "sigma_min"}),
    (DPM, {"num_train_timesteps": 500}),
    (DDIM, {}), (DDIM, {"clip_sample": False}), (DDIM, {"clip_sample_range": 2.5, **SD}),
    (DDIM, {"clip_sample": False, "set_alpha_to_one": False, "steps_offset": 1, **SD}),
    (DDIM, {"clip_sample": False, "timestep_spacing": "linspace"}),
    (DDIM, {"clip_sample": False, "timestep_spacing": "trailing", "prediction_type": "v_prediction",
            "rescale_betas_zero_snr": True, **SD}),
    (DDIM, {"prediction_type": "sample"}), (DDIM, {**COSINE, "num_train_timesteps": 300}),
    (EULER, {}), (EULER, SD), (EULER, {"use_karras_sigmas": True, **SD}),
    (EULER, {"use_exponential_sigmas": True}), (EULER, {"interpolation_type": "log_linear"}),
    (EULER, {"timestep_spacing": "leading", "steps_offset": 1}),
    (EULER, {"timestep_spacing": "trailing"}),
    (EULER, {"prediction_type": "v_prediction", **SD}), (EULER, {"prediction_type": "sample"}),
    (EULER, {"use_karras_sigmas": True, "sigma_min": 0.002, "sigma_max": 80.0}),
    (EULER, {"timestep_type": "continuous", "prediction_type": "v_prediction",
             "use_karras_sigmas": True, "sigma_min": 0.002, "sigma_max": 700.0, **SD}),
    (EULER, {"final_sigmas_type": "sigma_min"}), (EULER, COSINE),
    (EULER, {"rescale_betas_zero_snr": True, "timestep_spacing": "trailing",
             "prediction_type": "v_prediction", **SD}),
    (EULER, {"interpolation_type": "log_linear", "timestep_type": "continuous",
             "prediction_type": "v_prediction"}),
    (EULER, {"interpolation_type": "log_linear", "leap": True}),
    (EULER, {"final_sigmas_type": "sigma_min", "leap": True}),
    (DDIM, {"clip_sample": False, "set_alpha_to_one": False, "leap": True, **SD}),
    (FLOW, {}), (FLOW, {"shift": 3.0}), (FLOW, {"shift": 3.0, "own": True}),
    (FLOW, {"use_dynamic_shifting": True, "shift": 3.0, "tokens": 1500, "own": True}),
    (FLOW, {"use_dynamic_shifting": True, "tokens": 77, "time_shift_type": "linear"}),
    (FLOW, {"use_dynamic_shifting": True, "base_shift": 0.4, "max_shift": 2.0,
            "base_image_seq_len": 64,
            "max_image_seq_len": 1024, "tokens": 4096, "own": True, "shift_terminal": 0.02}),
    (FLOW, {"shift": 2.0, "use_karras_sigmas": True}),
    (FLOW, {"shift": 2.0, "use_exponential_sigmas": True}),
    (FLOW, {"shift": 3.0, "strength": 0.6}), (FLOW, {"shift": 3.0, "own": True, "strength": 0.35}),
]

FLOWING = {"use_flow_sigmas": True, "prediction_type": "flow_prediction"}
UNIPC_CONFIGS = [
    {}, {"solver_order": 1}, {"solver_order": 3}, {"solver_order": 3, "lower_order_final": False,
                                                   "final_sigmas_type": "sigma_min"},
    {"solver_type": "bh1", "final_sigmas_type": "sigma_min", **SD},
    {"solver_type": "bh1", "solver_order": 3, "final_sigmas_type": "sigma_min",
     "prediction_type": "v_prediction", **SD},
    {"prediction_type": "v_prediction", "solver_order": 3, **SD}, {"prediction_type": "sample"},
    {"predict_x0": False, "final_sigmas_type": "sigma_min", "solver_order": 3},
    {"predict_x0": False, "final_sigmas_type": "sigma_min", "prediction_type": "sample", **SD},
    {"predict_x0": False, "final_sigmas_type": "sigma_min", "prediction_type": "v_prediction",
     "solver_type": "bh1"},
    {"disable_corrector": [0, 2, 5], "timestep_spacing": "trailing"},
    {"timestep_spacing": "leading", "steps_offset": 1, "solver_type": "midpoint"},
    {"use_karras_sigmas": True, **SD}, {"use_exponential_sigmas": True, "solver_order": 3},
    {"use_karras_sigmas": True, "sigma_min": 0.05, "sigma_max": 20.0},
    {"rescale_betas_zero_snr": True, "timestep_spacing": "trailing",
     "prediction_type": "v_prediction", **SD},
    {**FLOWING, "flow_shift": 3.0}, {**FLOWING, "flow_shift": 5.0, "solver_order": 3},
    {**FLOWING, "flow_shift": 8.0, "final_sigmas_type": "sigma_min", "solver_type": "bh1"},
    {**FLOWING, "solver_order": 1, "disable_corrector": [0]},
    {**FLOWING, "use_dynamic_shifting": True, "most": 1.16, "tokens": 1500},
    {**FLOWING, "flow_shift": 3.0, "shift_terminal": 0.02},
    {**FLOWING, "use_karras_sigmas": True},
    {**FLOWING, "flow_shift": 3.0, "own": True}, {**FLOWING, "own": True, "shift_terminal": 0.02},
]

RANGE = {"sigma_min": 0.05, "sigma_max": 20.0}
SDE = {"algorithm_type": "sde-dpmsolver++"}
DYNAMIC = {"use_dynamic_shifting": True, "tokens": 1500, "own": True}
PLMS = {"skip_prk_steps": True, "set_alpha_to_one": False, "steps_offset": 1, **SD}
PATH_CONFIGS = [
    (PNDM, PLMS), (PNDM, {**PLMS, "prediction_type": "v_prediction"}),
    (PNDM, {"skip_prk_steps": True, "set_alpha_to_one": True, "timestep_spacing": "linspace"}),
    (PNDM, {**PLMS, "timestep_spacing": "trailing", "steps_offset": 0}),
    (DPM, SDE), (DPM, {**SDE, "solver_order": 1}), (DPM, {**SDE, "solver_order": 3, **SD}),
    (DPM, {**SDE, "solver_type": "heun", "use_karras_sigmas": True, **SD}),
    (DPM, {**SDE, "final_sigmas_type": "sigma_min", "prediction_type": "v_prediction"}),
    (DPM, {**SDE, **FLOWING, "flow_shift": 3.0}),
    (DPM, {"use_beta_sigmas": True}), (UNIPC, {"use_beta_sigmas": True, **SD}),
    (EULER, {"use_beta_sigmas": True, **SD}),
    (EULER, {"use_beta_sigmas": True, "sigma_min": 0.1, "sigma_max": 30.0}),
    (FLOW, {"shift": 3.0, "use_beta_sigmas": True}), (FLOW, {**DYNAMIC, "use_beta_sigmas": True}),
    (FLOW, {"own": True, "use_beta_sigmas": True}),
    (FLOW, {"shift": 3.0, "stochastic_sampling": True}), (FLOWLCM, {"shift": 3.0}),
    (FLOWLCM, {**DYNAMIC, "use_karras_sigmas": True, "shift_terminal": 0.02}),
    (FLOW, {"shift": 3.0, "invert_sigmas": True}),
    # Keys of other classes' configs, which these look for where they space their levels.
    (DPM, {**RANGE, "use_karras_sigmas": True}),
    (SINGLE, {**RANGE, "use_exponential_sigmas": True}),
    (HEUN, {**RANGE, "use_beta_sigmas": True}), (FLOW, {**RANGE, "use_karras_sigmas": True}),
    (FLOWLCM, {"sigma_min": 0.02, "use_exponential_sigmas": True}),
    (DPM, {**RANGE, "use_lu_lambdas": True}), (FLOW, RANGE),
    (FLOWLCM, {**DYNAMIC, "invert_sigmas": True, "use_karras_sigmas": True}),
    (ANCESTRAL, {}), (ANCESTRAL, {"timestep_spacing": "trailing", "rescale_betas_zero_snr": True,
                                  "prediction_type": "v_prediction", **SD}),
    (ANCESTRAL, {"timestep_spacing": "leading", "steps_offset": 1, **SD}),
    (SINGLE, {}), (SINGLE, {"solver_order": 3, **SD}), (SINGLE, {"solver_order": 1}),
    (SINGLE, {"solver_order": 3, "solver_type": "heun", "final_sigmas_type": "sigma_min"}),
    (SINGLE, {"solver_type": "heun", "lower_order_final": True, "use_karras_sigmas": True, **SD}),
    (SINGLE, {**SDE, "solver_order": 3, "final_sigmas_type": "sigma_min"}),
    (SINGLE, {**SDE, "solver_order": 3, "solver_type": "heun", "prediction_type": "v_prediction"}),
    (SINGLE, {**FLOWING, "flow_shift": 3.0}),
    (HEUN, {}), (HEUN, {"prediction_type": "v_prediction", "use_karras_sigmas": True, **SD}),
    (HEUN, {"prediction_type": "sample", "timestep_spacing": "trailing"}),
    (HEUN, {"use_exponential_sigmas": True, "clip_sample": True, "clip_sample_range": 2.0}),
    (HEUN, {"use_beta_sigmas": True, "timestep_spacing": "leading", "steps_offset": 1}),
    (FLOWHEUN, {}), (FLOWHEUN, {"shift": 3.0}), (FLOWHEUN, {"shift": 3.0, "strength": 0.6}),
    (LCM, {}), (LCM, {"prediction_type": "v_prediction", "clip_sample": True, **PIXART}),
    (LCM, {"prediction_type": "sample", "original_inference_steps": 100,
           "timestep_scaling": 5.0}),
    (TCD, {"eta": 0.3}), (TCD, {"eta": 0.0, "prediction_type": "v_prediction"}),
    (TCD, {"eta": 1.0, "prediction_type": "sample", "original_inference_steps": 77, **PIXART}),
]

TURBO = [1.0, 0.6509, 0.4374, 0.2932, 0.1893, 0.1108, 0.0495, 0.00031]
TIMES = [999, 759, 499, 259]
GIVEN = [       # lists of a request: four timesteps, or eight sigmas and a last one
    (FLOW, {**DYNAMIC, "given_sigmas": TURBO}), (FLOW, {"shift": 3.0, "given_sigmas": TURBO}),
    (FLOW, {"shift": 3.0, "given_times": TIMES}),
    (FLOW, {"shift": 3.0, "given_times": TIMES, "invert_sigmas": True}),
    (FLOWLCM, {"shift": 2.0, "given_sigmas": TURBO}),
    (UNIPC, {**FLOWING, "flow_shift": 3.0, "given_sigmas": TURBO}),
    (EULER, {**SD, "given_sigmas": [14.6, 6.4, 3.8, 2.2, 1.3, 0.86, 0.55, 0.38, 0.234]}),
    (EULER, {**SD, "given_times": TIMES}), (DPM, {**SD, "given_times": TIMES}),
    (HEUN, {"given_times": TIMES}), (LCM, {"given_times": TIMES}),
    (TCD, {"given_times": TIMES, "eta": 0.3}),
    (DDPM, {"given_times": TIMES, "clip_sample": False}),
]

# Cases of "image" start from IMAGE and the noise START, 3, 6 and 20 steps.
IMAGES = [
    (PNDM, PLMS),
    (DPM, {}), (DPM, {"solver_order": 3, **SD}), (DPM, {**SDE, **SD}),
    (DPM, {"use_karras_sigmas": True, "timestep_spacing": "trailing"}),
    (DDIM, {"clip_sample": False, "set_alpha_to_one": False, "steps_offset": 1, **SD}),
    (DDPM, {"clip_sample": False, "prediction_type": "v_prediction", **SD}),
    (EULER, {"timestep_spacing": "leading", "steps_offset": 1, **SD}),
    (EULER, {"interpolation_type": "log_linear"}), (ANCESTRAL, SD), (HEUN, SD),
    (UNIPC, {}), (UNIPC, {"solver_order": 3, "disable_corrector": [0, 2, 5]}),
    (SINGLE, {}), (SINGLE, {"solver_order": 3, **SD}), (LCM, {}), (TCD, {"eta": 0.3}),
]
STRENGTHS = {3: 0.9, 6: 0.58, 20: 0.7}

COG_CONFIGS = [
    {}, COG5B, {**COG5B, "snr_shift_scale": 3.0}, {**COG5B, **PIXART, "snr_shift_scale": 2.0},
    {"prediction_type": "sample", "timestep_spacing": "linspace"},
    {"prediction_type": "v_prediction", "set_alpha_to_one": False, "steps_offset": 1,
     "clip_sample_range": 0.1},
    {**PIXART, "timestep_spacing": "trailing", "snr_shift_scale": 0.5},
    {**COSINE, "num_train_timesteps": 300, "timestep_spacing": "linspace",
     "set_alpha_to_one": False},
]

DDPM_CONFIGS = [
    {}, {**SD, "beta_end": 0.03, "clip_sample": False, "prediction_type": "v_prediction",
         "steps_offset": 1},
    {"clip_sample_range": 2.5, "prediction_type": "sample", "variance_type": "fixed_large"},
    {"clip_sample": False, "timestep_spacing": "linspace", "variance_type": "fixed_small_log"},
    {**SD, "clip_sample": False, "prediction_type": "v_prediction", "timestep_spacing": "trailing",
     "rescale_betas_zero_snr": True},
    {**COSINE, "num_train_timesteps": 300}, {"clip_sample": False, "leap": True, **SD},
]


def model(x, t):
    return 0.3 * x + 0.1 * math.sin(float(t) / 100)


def shift_of(c, config):
    """The pipelines' calculate_shift; "most" is their max_shift where the scheduler has none."""
    base, least = c.get("base_image_seq_len", 256), c.get("base_shift", 0.5)
    slope = (c.get("max_shift", config.get("most")) - least) / (c.get("max_image_seq_len",
                                                                      4096) - base)
    return config.get("tokens", 0) * slope + least - slope * base


def set_flow(scheduler, config, steps):
    """What the pipelines of FLUX (own sigmas) and Stable Diffusion 3 do, from an image too."""
    c = scheduler.config
    mu = shift_of(c, config)
    sigmas = numpy.linspace(1.0, 1 / steps, steps) if config.get("own") else None
    scheduler.set_timesteps(None if sigmas is not None else steps, sigmas=sigmas,
                            mu=mu if c.use_dynamic_shifting else None)
    start = int(max(steps - min(steps * config.get("strength", 1.0), steps), 0))
    scheduler.set_begin_index(start)
    return scheduler.timesteps[start:]


def run_cog(scheduler, steps):
    """What the pipelines of CogVideoX do, with noise from a generator of its own; `next` is what
    that generator gives first after the last step."""
    scheduler.set_timesteps(steps)
    g = torch.Generator("cpu").manual_seed(SEED)
    x, old, back = torch.tensor(START).reshape(1, 2, 1, 4), None, None
    dpm = type(scheduler).__name__ == COGDPM
    top = float(x.abs().max())
    for t in scheduler.timesteps:
        if dpm:
            x, old = scheduler.step(model(x, t), old, t, back, x, generator=g, return_dict=False)
        else:
            x = scheduler.step(model(x, t), t, x, generator=g, return_dict=False)[0]
        back, top = t, max(top, float(x.abs().max()))
    r = {"times": scheduler.timesteps.tolist(), "init": 1.0, "top": top,
         "end": x.flatten().tolist()}
    return r | ({"next": float(torch.randn(x.shape, generator=g).flatten()[0])} if dpm else {})


def run_points(scheduler, steps):
    """Of a class whose times are 0 to 1 and whose model predicts the direction to the image."""
    scheduler.set_timesteps(steps)
    x = torch.tensor(START).reshape(1, 2, 1, 4)
    top, path, times = float(x.abs().max()), [], []
    for t in scheduler.timesteps:
        times.append(1000 * (1 - float(t)))
        x = scheduler.step(-model(x, times[-1]), t, x).prev_sample
        top = max(top, float(x.abs().max()))
        path += [float(x.flatten()[0]), float(x.flatten()[-1])]
    return {"times": times, "init": 1.0, "top": top, "end": x.flatten().tolist(), "path": path}


def set_times(scheduler, config, steps):
    """Of any class: the times of the steps that a request takes, and what a step is given."""
    name = type(scheduler).__name__
    if "given_sigmas" in config or "given_times" in config:
        lists = {k: config["given_" + k] for k in ("sigmas", "times") if "given_" + k in config}
        lists = {"sigmas": numpy.array(lists["sigmas"])} if "sigmas" in lists else {
            "timesteps": lists["times"]}
        if name in (FLOW, FLOWLCM) and scheduler.config.use_dynamic_shifting:
            lists["mu"] = shift_of(scheduler.config, config)
        scheduler.set_timesteps(**lists)
        times = scheduler.timesteps
    elif name in (FLOW, FLOWLCM):
        times = set_flow(scheduler, config, steps)
    else:
        scheduler.set_timesteps(steps)
        times = scheduler.timesteps
        if name != PNDM:
            scheduler.set_begin_index(0)    # else repeated timesteps begin with the second
    if name == FLOWHEUN and "strength" in config:
        start = int(max(steps - steps * config["strength"], 0)) * scheduler.order
        scheduler.set_begin_index(start)
        times = times[start:]
    return times, {"eta": config["eta"]} if "eta" in config else {}


def run_path(scheduler, config, steps):
    """Of any class; `next` is what the generator of the noise gives first after the last step."""
    times, more = set_times(scheduler, config, steps)
    g = torch.Generator("cpu").manual_seed(SEED)
    if "generator" in inspect.signature(scheduler.step).parameters:
        more["generator"] = g
    init = float(getattr(scheduler, "init_noise_sigma", 1.0))
    x = torch.tensor(START).reshape(1, 2, 1, 4) * init
    top, path = float(x.abs().max()), []
    for t in times:
        scaled = scheduler.scale_model_input(x, t) if hasattr(scheduler, "init_noise_sigma") else x
        x = scheduler.step(model(scaled, t), t, x, **more).prev_sample
        top = max(top, float(x.abs().max()))
        path += [float(x.flatten()[0]), float(x.flatten()[-1])]
    return {"times": times.tolist(), "init": init, "top": top, "end": x.flatten().tolist(),
            "next": float(torch.randn(x.shape, generator=g).flatten()[0]), "path": path}


def run_image(scheduler, config, steps):
    """What StableDiffusionImg2ImgPipeline does, of any class; as run_path."""
    scheduler.set_timesteps(steps)
    first = (steps - min(int(steps * config["strength"]), steps)) * scheduler.order
    if hasattr(scheduler, "set_begin_index"):
        scheduler.set_begin_index(first)
    times = scheduler.timesteps[first:]
    g, more = torch.Generator("cpu").manual_seed(SEED), {}
    if "generator" in inspect.signature(scheduler.step).parameters:
        more["generator"] = g
    x = scheduler.add_noise(torch.tensor(IMAGE).reshape(1, 2, 1, 4),
                            torch.tensor(START).reshape(1, 2, 1, 4), times[:1])
    top, path = float(x.abs().max()), []
    for t in times:
        x = scheduler.step(model(scheduler.scale_model_input(x, t), t), t, x, **more).prev_sample
        top = max(top, float(x.abs().max()))
        path += [float(x.flatten()[0]), float(x.flatten()[-1])]
    return {"times": times.tolist(), "init": float(scheduler.init_noise_sigma), "top": top,
            "end": x.flatten().tolist(), "path": path,
            "next": float(torch.randn(x.shape, generator=g).flatten()[0])}


def run(name, config, steps):
    own = ("image", "own", "tokens", "strength", "leap", "most", "eta", "given_sigmas",
           "given_times")
    scheduler = getattr(diffusers, name).from_config(
        {k: v for k, v in config.items() if k not in own})
    if config.get("image"):
        return run_image(scheduler, config, steps)
    if (name, config) in PATH_CONFIGS + GIVEN:
        return run_path(scheduler, config, steps)
    if name in (COG, COGDPM):
        return run_cog(scheduler, steps)
    if name == POINTS:
        return run_points(scheduler, steps)
    if name == DDPM:
        return run_ddpm(scheduler, steps, config.get("leap"))
    if name == FLOW:
        times = set_flow(scheduler, config, steps)
        x = torch.tensor(START, dtype=torch.float32).reshape(1, 2, 1, 4)
        top = float(x.abs().max())
        for t in times:
            x = scheduler.step(model(x, t), t, x).prev_sample
            top = max(top, float(x.abs().max()))
        return {"times": times.tolist(), "init": 1.0, "top": top, "end": x.flatten().tolist()}
    shift = dict(mu=shift_of(scheduler.config, config)) if "most" in config else {}
    if config.get("own"):
        shift["sigmas"] = numpy.linspace(1.0, 1 / steps, steps)
    scheduler.set_timesteps(steps, **shift)
    init = float(scheduler.init_noise_sigma)
    x = torch.tensor(START, dtype=torch.float32).reshape(1, 2, 1, 4) * init
    top, path = float(x.abs().max()), []
    for t in scheduler.timesteps:
        out = scheduler.step(model(scheduler.scale_model_input(x, t), t), t, x)
        x = out.pred_original_sample if config.get("leap") and steps == 1 else out.prev_sample
        top = max(top, float(x.abs().max()))
        path += [float(x.flatten()[0]), float(x.flatten()[-1])]
    r = {"times": scheduler.timesteps.tolist(), "init": init, "top": top,
         "end": x.flatten().tolist()}
    return r | ({"path": path} if name in PATHS else {})


def run_ddpm(scheduler, steps, leap):
    """The same of a scheduler that draws noise by itself."""
    scheduler.set_timesteps(steps)
    g = torch.Generator("cpu").manual_seed(SEED)
    x = torch.tensor(START).reshape(1, 2, 1, 4)
    top = float(x.abs().max())
    for t in scheduler.timesteps:
        out = scheduler.step(model(x, t), t, x, generator=g)
        x = out.pred_original_sample if leap and steps == 1 else out.prev_sample
        top = max(top, float(x.abs().max()))
    return {"times": scheduler.timesteps.tolist(), "init": 1.0, "top": top,
            "end": x.flatten().tolist(),
            "next": float(torch.randn(x.shape, generator=g).flatten()[0])}


def short(v):
    if isinstance(v, list):
        return [short(i) for i in v]
    return float(f"{v:.8g}") if isinstance(v, float) and math.isfinite(v) else v


def random_config(rng):
    name = rng.choice([DPM, DPM, DDIM, EULER, COG, COGDPM, DDPM])
    c = dict(rng.choice([PIXART, SD, COSINE]))
    maybe = lambda key, values: c.update({key: rng.choice(values)}) if rng.random() < 0.6 else None
    maybe("timestep_spacing", ["linspace", "leading", "trailing"])
    maybe("prediction_type", ["epsilon", "v_prediction", "sample"])
    maybe("steps_offset", [0, 1])
    maybe("final_sigmas_type", ["zero", "sigma_min"])
    maybe("num_train_timesteps", [1000, 1000, 500, 777])
    if rng.random() < 0.3:
        c[rng.choice(["use_karras_sigmas", "use_exponential_sigmas", "use_lu_lambdas"])] = True
    maybe("solver_order", [1, 2, 3])
    maybe("solver_type", ["midpoint", "heun"])
    maybe("lower_order_final", [True, False])
    maybe("euler_at_final", [True, False])
    maybe("lambda_min_clipped", [-5.1, -3.0])
    maybe("clip_sample", [True, False])
    maybe("set_alpha_to_one", [True, False])
    maybe("snr_shift_scale", [1.0, 0.5, 3.0])
    maybe("variance_type", ["fixed_small", "fixed_small_log", "fixed_large"])
    maybe("interpolation_type", ["linear", "log_linear"])
    return name, c, rng.randint(1, 130)


def make(names, options):
    """With --random as many random configs, for a longer look."""
    rng = random.Random(1)
    todo = [(n, c, k) for n, c in CONFIGS for k in COUNTS]
    # Step counts at which a timestep falls on a half: numpy's own rounding errors decide.
    todo += [(n, {"timestep_spacing": s}, k) for n in (DPM, DDIM, EULER)
             for s in ("linspace", "trailing") for k in (18, 22, 96)]
    todo += [(n, c, k) for n in (COG, COGDPM) for c in COG_CONFIGS for k in COG_COUNTS]
    todo += [(DDPM, c, k) for c in DDPM_CONFIGS for k in COG_COUNTS]
    todo += [(UNIPC, c, k) for c in UNIPC_CONFIGS for k in PATH_COUNTS]
    todo += [(n, c, k) for n, c in PATH_CONFIGS for k in PATH_COUNTS]
    todo += [(n, c, 8 if "given_sigmas" in c else 4) for n, c in GIVEN]
    todo += [(n, c | {"image": True, "strength": s}, k) for n, c in IMAGES
             for k, s in STRENGTHS.items()]
    todo += [(POINTS, c, k) for c in ({}, {"shift": 3.0}) for k in PATH_COUNTS[1:]]
    if options.random:
        todo = [random_config(rng) for _ in range(options.random)]
    cases = []
    for name, config, steps in todo:
        try:
            r = run(name, config, steps)
        except (IndexError, ValueError) as e:
            print("diffusers refuses", name, config, steps, str(e)[:80])
            continue
        if not numpy.isfinite(r["end"]).all():
            print("not finite", name, config, steps)
            continue
        case = {"class": name, "config": config, "steps": steps}
        case |= {k: short(v) for k, v in r.items()}
        cases.append(json.dumps(case, separators=(",", ":")))
    with open(options.out / "sampler.json", "w") as f:
        f.write("[\n" + ",\n".join(cases) + "\n]\n")
    print(len(cases), "cases")
