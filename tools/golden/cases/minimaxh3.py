"""MiniMax-H3: the transformer alone.

minimaxh3-forms/NAME has the results of the transformer alone, with the random weights of fill.py:
tokens of the video [N,F] and of the audio [M,C], rows of text [m,E], the times of video and audio,
1 for clean latents, and the predictions of all tokens [N + M,F], in which rows of audio end in
zeros.
"""
import torch
from diffusers import MiniMaxH3Transformer3DModel
from diffusers.modular_pipelines.minimax_h3.before_denoise import (MiniMaxH3PrepareLayoutStep,
                                                                   MiniMaxH3SetTimestepsStep)

from ..common import quiet
from .ltx2 import save_form, set_weights

# 18 of 20 features turn by 3 frequencies of three axes; all of 12
SMALL = dict(num_attention_heads=3, attention_head_dim=20, hidden_size=44, num_layers=2,
             num_refiner_layers=2, ffn_dim=54, in_channels=4, audio_in_channels=5, text_dim=22,
             time_embed_hidden_dim=40, time_embed_dim=28, rope_freq_dim=3)
FIVE = dict(num_attention_heads=5, attention_head_dim=12, hidden_size=66, num_layers=3,
            num_refiner_layers=1, ffn_dim=35, in_channels=7, audio_in_channels=7, text_dim=18,
            patch_size=(1, 1, 1), freq_dim=32, time_embed_hidden_dim=24, time_embed_dim=36,
            rope_freq_dim=2, rope_theta=500.0, norm_eps=1e-3, qk_norm_eps=1e-4,
            final_norm_eps=1e-2)
# config, latent frames, rows and columns of latent cells, audio tokens of a side, rows of text,
# times of video and audio
FORMS = {
    "small": (SMALL, (7, 6, 10), 11, 7, (0.125, 0.375)),
    "five": (FIVE, (2, 5, 3), 3, 4, (0.0, 0.0)),
}


def run_form(name, out):
    config, (T, H, W), M, m, times = FORMS[name]
    model = set_weights(MiniMaxH3Transformer3DModel(**config))
    c, g = model.config, torch.Generator().manual_seed(43)
    text = torch.randn(1, m, c.text_dim, generator=g)
    F = c.in_channels * c.patch_size[1] * c.patch_size[2]
    places, tags, video, audio, words, held, _ = MiniMaxH3PrepareLayoutStep.build_packed_sequence(
        torch.ones(m, dtype=torch.long), T, H, W, M, tuple(c.patch_size), 2, 2, 0)
    z = torch.randn(1, len(video), F, generator=g)
    a = torch.randn(1, len(audio), c.audio_in_channels, generator=g)
    t, index = MiniMaxH3SetTimestepsStep.build_row_timesteps(
        video, audio, held, 0, m, *times, max(times[0], 0.999), 1.0)
    y, sound = model(hidden_states=z, audio_hidden_states=a, encoder_hidden_states=text,
                     timestep=t, timestep_indices=index, token_tags=tags, position_ids=places,
                     video_indices=video, audio_indices=audio, text_indices=words,
                     return_dict=False)
    sound = torch.nn.functional.pad(sound, (0, F - sound.shape[2]))
    save_form(out / "minimaxh3-forms" / name, model, {
        "latents": z[0], "audio": a[0], "text": text[0], "time": torch.tensor(times),
        "grid": torch.tensor([T, H // c.patch_size[1], W // c.patch_size[2]],
                             dtype=torch.float32),
        "out": torch.cat([y, sound], 1)[0].contiguous()})
    print(f"{name}: {len(video)} and {len(audio)} tokens, {y.std():.2f}, {sound.std():.2f}")


def make(names, options):
    quiet()
    with torch.no_grad():
        for name in FORMS if "forms" in names else ():
            run_form(name, options.out)
