"""Wan Animate: the transformer alone, and whole requests, in the layout of wan.py.

animate-forms/NAME also has "extra", tokens of the condition and of the pose latents, and "face",
the pixels [frames, size size 3] of the face video.
"""
import json

import numpy as np
import torch
from diffusers import WanAnimateTransformer3DModel
from safetensors.torch import save_file

from ..common import quiet
from ..fill import weights
from .wan import SMALL, tokens

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


def make(names, options):
    quiet()
    with torch.no_grad():
        for name in FORMS if "forms" in names else ():
            run_form(name, options.out)
