"""Wan: the transformer alone.

wan-forms/NAME holds what the transformer alone computes, with the random weights that the program
makes of a tensor's name (src/exec/store.c, xd_random_weight): tokens [N, C pt p p], features in the
order channel, frame, row, column; rows of text [m,E].
"""
import json

import numpy as np
import torch
from diffusers import WanTransformer3DModel
from safetensors.torch import save_file

from ..common import quiet
from ..fill import weights

# heads of 16 and of 10 features, whose thirds are uneven; odd widths
FORMS = {
    "plain": (dict(num_attention_heads=3, attention_head_dim=16, in_channels=4, out_channels=4,
                   text_dim=20, freq_dim=24, ffn_dim=37, num_layers=2), (3, 6, 10)),
    "bare": (dict(num_attention_heads=5, attention_head_dim=10, in_channels=3, out_channels=3,
                  text_dim=12, freq_dim=32, ffn_dim=40, num_layers=3, cross_attn_norm=False,
                  patch_size=(2, 1, 3), eps=1e-5), (4, 3, 6)),
}


def tokens(z, patch):
    """[C,T,H,W] -> [N, C pt ph pw]"""
    (C, T, H, W), (a, b, c) = z.shape, patch
    z = z.reshape(C, T // a, a, H // b, b, W // c, c).permute(1, 3, 5, 0, 2, 4, 6)
    return z.reshape(-1, C * a * b * c).contiguous()


def run_form(name, out):
    config, (T, H, W) = FORMS[name]
    model = WanTransformer3DModel(**config).eval()
    for n, p in model.named_parameters():
        small = p.ndim == 1 or "scale_shift_table" in n
        gain = 0.1 if small else 0.9 / np.sqrt(np.float32(p[0].numel()))
        p.data.copy_(weights(n, p.shape, gain, 1.0 if p.ndim == 1 and n.endswith("weight")
                             else 0.0))
    c, g = model.config, torch.Generator().manual_seed(19)
    z = torch.randn(1, c.in_channels, T, H, W, generator=g)
    text = torch.randn(1, 7, c.text_dim, generator=g)
    t = torch.tensor([613.0])
    y = model(z, t, text, return_dict=False)[0]
    d = out / "wan-forms" / name
    d.mkdir(parents=True, exist_ok=True)
    kept = {k: v for k, v in c.items() if not k.startswith("_")}
    (d / "config.json").write_text(json.dumps({"_class_name": type(model).__name__, **kept},
                                              indent=2) + "\n")
    grid = [n // k for n, k in zip((T, H, W), c.patch_size)]
    save_file({"latents": tokens(z[0], c.patch_size), "text": text[0], "time": t,
               "out": tokens(y[0], c.patch_size),
               "grid": torch.tensor(grid, dtype=torch.float32)}, d / "golden.safetensors")
    for p in d.iterdir():
        p.chmod(0o644)
    print(f"{name}: {grid} tokens, {y.std():.2f}")


def make(names, options):
    quiet()
    with torch.no_grad():
        for name in names:
            run_form(name, options.out)
