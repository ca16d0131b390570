"""LTX-2: the transformer alone, and the connectors of its text.

ltx2-forms/NAME has the results of the transformer alone, with the random weights of fill.py: tokens
of the video [N,C] and of the audio [M,C]; rows of text [m,2E], with the features for the video
before those for the audio; the predictions of all tokens in the same order, with attention between
video and audio ("out") and without it ("isolated").

ltx2-connectors/NAME has the connectors' rows [n,E+E'] of the hidden states [m,L,E] of a text, whose
padding to n places is left out.
"""
import json

import numpy as np
import torch
from diffusers import LTX2VideoTransformer3DModel
from diffusers.pipelines.ltx2.connectors import LTX2TextConnectors
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


# 20 channels of 4 states; the second one has projections of their own
CONNECTORS = {
    "joint": (dict(caption_channels=20, text_proj_in_factor=4,
                   video_connector_num_attention_heads=5,
                   video_connector_attention_head_dim=4, video_connector_num_layers=2,
                   video_connector_num_learnable_registers=4,
                   audio_connector_num_attention_heads=2,
                   audio_connector_attention_head_dim=10, audio_connector_num_layers=1,
                   audio_connector_num_learnable_registers=6, rope_type="split"), 12, 5),
    "apart": (dict(caption_channels=20, text_proj_in_factor=3,
                   video_connector_num_attention_heads=3,
                   video_connector_attention_head_dim=6, video_connector_num_layers=1,
                   video_connector_num_learnable_registers=4,
                   audio_connector_num_attention_heads=2, audio_connector_attention_head_dim=4,
                   audio_connector_num_layers=2, audio_connector_num_learnable_registers=4,
                   per_modality_projections=True, video_hidden_dim=18, audio_hidden_dim=8,
                   proj_bias=True, connector_rope_base_seq_len=64), 8, 8),
}


def set_weights(model):
    for n, p in model.named_parameters():
        small = p.ndim == 1 or n.endswith(("scale_shift_table", "registers"))
        gain = 0.1 if small else 0.9 / np.sqrt(np.float32(p[0].numel()))
        p.data.copy_(weights(n, p.shape, gain, 1.0 if p.ndim == 1 and n.endswith("weight")
                             else 0.0))
    return model.eval()


def save_form(d, model, tensors):
    d.mkdir(parents=True, exist_ok=True)
    kept = {k: v for k, v in model.config.items() if not k.startswith("_")}
    (d / "config.json").write_text(json.dumps({"_class_name": type(model).__name__, **kept},
                                              indent=2) + "\n")
    save_file(tensors, d / "golden.safetensors")
    for p in d.iterdir():
        p.chmod(0o644)


def run_connectors(name, out):
    config, n, m = CONNECTORS[name]
    model = set_weights(LTX2TextConnectors(**config))
    L, E = config["text_proj_in_factor"], config["caption_channels"]
    states = torch.randn(1, n, E, L, generator=torch.Generator().manual_seed(31))
    states *= torch.arange(1, L + 1)
    mask = (torch.arange(n)[None] >= n - m).int()
    rows = model(states, mask)
    save_form(out / "ltx2-connectors" / name, model, {
        "states": states[0, n - m:].transpose(1, 2).contiguous(),
        "out": torch.cat(rows[:2], -1)[0].contiguous()})
    print(f"{name}: {m} of {n} tokens, {rows[0].std():.2f}")


def run_form(name, out):
    config, (T, H, W), M, fps, held = FORMS[name]
    model = set_weights(LTX2VideoTransformer3DModel(**config))
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
    save_form(out / "ltx2-forms" / name, model, {
        "latents": z[0], "audio": a[0], "text": text[0], "time": t, "fps": torch.tensor([fps]),
        "grid": torch.tensor([T, H, W], dtype=torch.float32),
        "held": torch.tensor([float(held)])} | y)
    print(f"{name}: {N} and {M} tokens, {y['out'].std():.2f}")


def make(names, options):
    quiet()
    with torch.no_grad():
        for name in FORMS if "forms" in names else ():
            run_form(name, options.out)
        for name in CONNECTORS if "connectors" in names else ():
            run_connectors(name, options.out)
