"""SkyReels-V2: the transformer alone, and whole requests, in the layout of wan.py.

skyreels-forms/NAME also has "fps", the frame rate. skyreels-df has diffusers' pipeline for
diffusion forcing in its synchronous mode, in which all frames of a step have the same timestep;
this pipeline can only compute one video at a time if the frame rate is read.
"""
import json

import numpy as np
import torch
from diffusers import (FlowMatchEulerDiscreteScheduler, SkyReelsV2DiffusionForcingPipeline,
                       SkyReelsV2ImageToVideoPipeline, SkyReelsV2Pipeline,
                       SkyReelsV2Transformer3DModel, UniPCMultistepScheduler)
from safetensors.torch import save_file
from transformers import CLIPVisionModelWithProjection

from ..common import make_each, quiet
from ..fill import weights
from . import wan
from .wan import CLIP, SEES, SMALL, UNIPC, tokens

OWN = dict(dit_kind=SkyReelsV2Transformer3DModel)
RATED = dict(SMALL, num_attention_heads=5, attention_head_dim=10, num_layers=3,
             inject_sample_info=True)
# the config, the size and the frame rate; in "forced", the timesteps of all frames are given
FORMS = {
    "rated": (dict(SMALL, inject_sample_info=True), (3, 6, 10), 24, False),
    "forced": (dict(RATED, patch_size=(1, 1, 3), eps=1e-5, cross_attn_norm=False), (4, 3, 6), 16,
               True),
    # rows of an image, without places
    "image": (dict(SMALL, in_channels=9, text_dim=16, image_dim=14, added_kv_proj_dim=48),
              (2, 4, 6), 24, False),
}
MODELS = {
    "skyreels": OWN | dict(dit=SMALL, weights="bf16", kind=SkyReelsV2Pipeline,
                           scheduler=UniPCMultistepScheduler(**UNIPC | {"flow_shift": 8.0})),
    "skyreels-df": OWN | dict(dit=RATED, weights="f16", kind=SkyReelsV2DiffusionForcingPipeline,
                              scheduler=UniPCMultistepScheduler(**UNIPC | {"flow_shift": 1.0})),
    "skyreels-i2v": OWN | dict(dit=dict(SEES, added_kv_proj_dim=48), text=dict(d_model=28),
                               clip=CLIP, clip_kind=CLIPVisionModelWithProjection, weights="bf16",
                               kind=SkyReelsV2ImageToVideoPipeline,
                               scheduler=FlowMatchEulerDiscreteScheduler(shift=5.0)),
}
RUNS = {
    "skyreels": dict(prompts=["a red circle"], negative_prompt="a green ring", width=64, height=48,
                     frames=9, steps=4, seed=101, guidance=6.0),
    "skyreels-df": dict(prompts=["a purple ring"], negative_prompt="", width=48,
                        height=32, frames=9, steps=3, seed=102, guidance=3.0),
    "skyreels-df-lora": dict(model="skyreels-df", prompts=["a white star"], width=32, height=48,
                             frames=5, steps=2, seed=103, guidance=1.0, fps=16,
                             loras=dict(peft=0.7, kohya=-0.4)),
    "skyreels-i2v": dict(prompts=["a red circle"], negative_prompt="a green ring", width=48,
                         height=64, frames=5, steps=3, seed=104, image=(70, 37)),
}


def run_form(name, out):
    config, (T, H, W), fps, forced = FORMS[name]
    model = SkyReelsV2Transformer3DModel(**config).eval()
    for n, p in model.named_parameters():
        small = p.ndim == 1 or n.endswith(("scale_shift_table", "fps_embedding.weight"))
        gain = 0.1 if small else 0.9 / np.sqrt(np.float32(p[0].numel()))
        p.data.copy_(weights(n, p.shape, gain, 1.0 if p.ndim == 1 and n.endswith("weight")
                             else 0.0))
    c, g = model.config, torch.Generator().manual_seed(39)
    z = torch.randn(1, c.in_channels, T, H, W, generator=g)
    text = torch.randn(1, 512 if c.image_dim else 7, c.text_dim, generator=g)
    t, rows, seen, keep = torch.tensor([613.0]), text[0], None, {}
    if c.image_dim:
        seen = torch.randn(1, 3, c.image_dim, generator=g)
        wide = torch.nn.functional.pad(seen[0], (0, c.text_dim - c.image_dim))
        rows = torch.cat([rows, wide])
        keep["real"] = torch.tensor([3.0])
    if c.in_channels > c.out_channels:
        keep["extra"] = tokens(z[0, c.out_channels:], c.patch_size)
    y = model(z, t.expand(1, T // c.patch_size[0]) if forced else t, text,
              encoder_hidden_states_image=seen, enable_diffusion_forcing=forced,
              fps=[0 if fps == 16 else 1], return_dict=False)[0]
    d = out / "skyreels-forms" / name
    d.mkdir(parents=True, exist_ok=True)
    kept = {k: v for k, v in c.items() if not k.startswith("_")}
    (d / "config.json").write_text(json.dumps({"_class_name": type(model).__name__, **kept},
                                              indent=2) + "\n")
    grid = [n // k for n, k in zip((T, H, W), c.patch_size)]
    save_file(keep | {"latents": tokens(z[0, :c.out_channels], c.patch_size), "text": rows,
                      "time": t, "out": tokens(y[0], c.patch_size),
                      "fps": torch.tensor([float(fps)]),
                      "grid": torch.tensor(grid, dtype=torch.float32)}, d / "golden.safetensors")
    for p in d.iterdir():
        p.chmod(0o644)
    print(f"{name}: {grid} tokens, {y.std():.2f}")


def make(names, options):
    quiet()
    with torch.no_grad():
        for name in FORMS if "forms" in names else ():
            run_form(name, options.out)
    wan.MODELS |= MODELS
    wan.RUNS |= RUNS
    make_each([n for n in names if n in RUNS], options.out, MODELS, wan.make_model, wan.run)
