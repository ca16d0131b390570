"""LTX-2: the transformer alone.

ltx2-forms/NAME has the results of the transformer alone, with the random weights of fill.py: tokens
of the video [N,C] and of the audio [M,C]; rows of text [m,2E], with the features for the video
before those for the audio; the predictions of all tokens in the same order, with attention between
video and audio ("out") and without it ("isolated").
"""
import json

import numpy as np
import torch
from diffusers import LTX2VideoTransformer3DModel
from safetensors.torch import save_file

from ..common import quiet
from ..fill import weights

# 48 features turn by 8 frequencies of three axes; of 60 features none stays; of 20 two do not turn
SMALL = dict(num_attention_heads=3, attention_head_dim=16, cross_attention_dim=48, in_channels=6,
             out_channels=6, audio_num_attention_heads=3, audio_attention_head_dim=8,
             audio_cross_attention_dim=24, audio_in_channels=6, audio_out_channels=6,
             caption_channels=20, num_layers=2, rope_type="split")
FIVE = dict(SMALL, num_attention_heads=5, attention_head_dim=10, cross_attention_dim=50,
            audio_num_attention_heads=5, audio_attention_head_dim=6, audio_cross_attention_dim=30,
            num_layers=3)
# config, grid of the video's tokens, audio tokens, frames per second, tokens with timestep 0
FORMS = {
    "split": (SMALL, (3, 5, 7), 11, 24.0, 0),
    "held": (dict(FIVE, audio_pos_embed_max_pos=30, pos_embed_max_pos=16, base_height=1024),
             (2, 4, 3), 5, 30.0, 12),
    "pairs": (dict(FIVE, rope_type="interleaved", attention_bias=False, attention_out_bias=False,
                   ff_bias=False, norm_eps=1e-5, num_layers=1, audio_scale_factor=3,
                   cross_attn_timestep_scale_multiplier=500), (2, 3, 5), 4, 12.5, 0),
}


def run_form(name, out):
    config, (T, H, W), M, fps, held = FORMS[name]
    model = LTX2VideoTransformer3DModel(**config).eval()
    for n, p in model.named_parameters():
        small = p.ndim == 1 or n.endswith("scale_shift_table")
        gain = 0.1 if small else 0.9 / np.sqrt(np.float32(p[0].numel()))
        p.data.copy_(weights(n, p.shape, gain, 1.0 if p.ndim == 1 and n.endswith("weight")
                             else 0.0))
    c, g, m, N = model.config, torch.Generator().manual_seed(29), 7, T * H * W
    z = torch.randn(1, N, c.in_channels, generator=g)
    a = torch.randn(1, M, c.audio_in_channels, generator=g)
    text = torch.randn(1, m, 2 * c.caption_channels, generator=g)
    t = torch.tensor([613.0])
    times = t if not held else torch.where(torch.arange(N) < held, 0.0, t)[None]
    y = {key: torch.cat(model(z, a, *text.split(c.caption_channels, -1), times, t, t,
                              num_frames=T, height=H, width=W, fps=fps, audio_num_frames=M,
                              isolate_modalities=key != "out", use_cross_timestep=True,
                              return_dict=False), 1)[0]
         for key in ("out", "isolated")}
    d = out / "ltx2-forms" / name
    d.mkdir(parents=True, exist_ok=True)
    kept = {k: v for k, v in c.items() if not k.startswith("_")}
    (d / "config.json").write_text(json.dumps({"_class_name": type(model).__name__, **kept},
                                              indent=2) + "\n")
    save_file({"latents": z[0], "audio": a[0], "text": text[0], "time": t,
               "grid": torch.tensor([T, H, W], dtype=torch.float32), "fps": torch.tensor([fps]),
               "held": torch.tensor([float(held)])} | y, d / "golden.safetensors")
    for p in d.iterdir():
        p.chmod(0o644)
    print(f"{name}: {N} and {M} tokens, {y['out'].std():.2f}")


def make(names, options):
    quiet()
    with torch.no_grad():
        for name in FORMS if "forms" in names else ():
            run_form(name, options.out)
