"""MiniMax-H3: the transformer alone, and the decoder of audio alone.

minimaxh3-forms/NAME has the results of the transformer alone, with the random weights of fill.py:
tokens of the video [N,F] and of the audio [M,C], rows of text [m,E], the times of video and audio,
1 for clean latents, and the predictions of all tokens [N + M,F], in which rows of audio end in
zeros.

minimaxh3-audio/NAME has the samples [t,1] that the decoder makes of latents [t,C] of one side,
which are normalized.
"""
import torch
from diffusers import AutoencoderKLMiniMaxH3Audio, MiniMaxH3Transformer3DModel
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
# config, points in time
AUDIO = {
    "small": (dict(encoder_dim=4, encoder_rates=(2, 3), latent_dim=24, latent_channels=6,
                   num_attention_heads=2, decoder_dim=20, decoder_rates=(3, 2),
                   decoder_kernel_sizes=(7, 4), resblock_kernel_sizes=(3, 5),
                   resblock_dilation_sizes=((1, 3), (1, 2, 5)),
                   latents_mean=[0.5, -0.25, 0.0, 1.0, -1.0, 0.75],
                   latents_std=[0.5, 1.5, 1.0, 2.0, 0.75, 1.25]), 9),
    "one": (dict(encoder_dim=4, encoder_rates=(5,), latent_dim=10, latent_channels=5,
                 num_attention_heads=1, decoder_dim=6, decoder_rates=(5,),
                 decoder_kernel_sizes=(9,), resblock_kernel_sizes=(3,),
                 resblock_dilation_sizes=((1, 3, 5),)), 1),
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


def run_audio(name, out):
    config, n = AUDIO[name]
    model = set_weights(AutoencoderKLMiniMaxH3Audio(**config))
    rows = torch.randn(n, config["latent_channels"], generator=torch.Generator().manual_seed(47))
    z = rows
    if "latents_std" in config:
        z = rows * torch.tensor(config["latents_std"]) + torch.tensor(config["latents_mean"])
    y = model.decode(z.T[None], return_dict=False)[0]
    save_form(out / "minimaxh3-audio" / name, model, {"in": rows, "out": y[0].T.contiguous()})
    print(f"{name}: {n} rows, {y.shape[2]} samples, {y.std():.3f}, {y.abs().max():.3f}")


def make(names, options):
    quiet()
    with torch.no_grad():
        for name in FORMS if "forms" in names else ():
            run_form(name, options.out)
        for name in AUDIO if "audio" in names else ():
            run_audio(name, options.out)
