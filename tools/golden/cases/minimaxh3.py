"""MiniMax-H3: the transformer alone, the decoder of audio alone, and whole requests.

minimaxh3-forms/NAME has the results of the transformer alone, with the random weights of fill.py:
tokens of the video [N,F] and of the audio [M,C], rows of text [m,E], the times of video and audio,
1 for clean latents, and the predictions of all tokens [N + M,F], in which rows of audio end in
zeros.

minimaxh3-audio/NAME has the samples [t,1] that the decoder makes of latents [t,C] of one side,
which are normalized.

The other folders are whole requests; layout and names of tensors as in ltx2.py, with latents of
audio [1,t,C] whose rows of the right side follow those of the left one. The pipeline's limits of
the duration are turned off.
"""
import json
import shutil

import torch
from diffusers import (AutoencoderKLMiniMaxH3, AutoencoderKLMiniMaxH3Audio, MiniMaxH3Scheduler,
                       MiniMaxH3Transformer3DModel)
from diffusers.modular_pipelines.minimax_h3 import MiniMaxH3Blocks, MiniMaxH3ModularPipeline
from diffusers.modular_pipelines.minimax_h3.before_denoise import (MiniMaxH3PrepareLayoutStep,
                                                                   MiniMaxH3SetTimestepsStep)
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from ..common import make_each, quiet, save_run, tidy
from ..fill import configure, fill
from .flux2 import load_tokenizer, make_tokenizer
from .krea2 import TEXT, VISION
from .ltx2 import save_form, set_weights
from .video import keep_frames
from .wan import FRAMES_FIRST

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
STATES = 51                 # the transformer reads the hidden state before the last one
DIT = dict(SMALL, in_channels=6, audio_in_channels=5)
VAE = dict(latent_channels=6, block_out_channels=[4, 4], layers_per_block=1, norm_num_groups=1,
           spatial_downsample_factors=[2, 2], temporal_downsample_factors=[2, 2],
           decoder_num_layers=2, decoder_num_attention_heads=3, decoder_attention_head_dim=8,
           latents_mean=[0.5, -0.25, 0.0, 1.0, -0.5, 0.75],
           latents_std=[0.5, 1.5, 1.0, 2.0, 0.75, 1.25])
SOUND = dict(AUDIO["small"][0], latent_channels=5, latent_dim=20,
             latents_mean=[0.5, -0.25, 0.0, 1.0, -1.0], latents_std=[0.5, 1.5, 1.0, 2.0, 0.75])
MODELS = {
    "minimaxh3": dict(weights="bf16", dit=DIT, text=dict(hidden_size=22, intermediate_size=27),
                      vae=VAE, audio=SOUND),
    # chunks of 3 latent frames, three frames in common; pixels of a cell 16 x 16
    "minimaxh3-five": dict(weights="f16", text=dict(hidden_size=18, intermediate_size=25),
                           dit=dict(FIVE, in_channels=6, patch_size=(1, 2, 2)),
                           vae=VAE | dict(spatial_downsample_factors=[4, 4], clip_length=5,
                                          temporal_downsample_factors=[2, 1], token_drop=1),
                           audio=SOUND | dict(latent_channels=7, latent_dim=28,
                                              latents_mean=[0.25] * 7, latents_std=[1.5] * 7)),
}
RUNS = {
    "minimaxh3": dict(prompts=["  A large Red circle, a loud bell ", "two stars"], width=40,
                      height=24, frames=22, steps=5, seed=7),
    # tiles in rows and columns; 6 frames become 8
    "minimaxh3-five": dict(prompts=["a purple ring"], width=288, height=288, frames=6,
                           steps=3, seed=40),
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
    model = set_weights(AutoencoderKLMiniMaxH3Audio(**config), (".filter",))
    rows = torch.randn(n, config["latent_channels"], generator=torch.Generator().manual_seed(47))
    z = rows
    if "latents_std" in config:
        z = rows * torch.tensor(config["latents_std"]) + torch.tensor(config["latents_mean"])
    y = model.decode(z.T[None], return_dict=False)[0]
    save_form(out / "minimaxh3-audio" / name, model, {"in": rows, "out": y[0].T.contiguous()})
    print(f"{name}: {n} rows, {y.shape[2]} samples, {y.std():.3f}, {y.abs().max():.3f}")


def fill_audio(model, dtype):
    """Random weights, but the filters that no file has to have."""
    filters = {n: b.clone() for n, b in model.named_buffers() if n.endswith(".filter")}
    fill(model, dtype)
    for n, b in model.named_buffers():
        if n in filters:
            b.copy_(filters[n])
    return model


def make_parts(name):
    spec = MODELS[name]
    text = dict(TEXT, num_hidden_layers=STATES, **spec["text"])
    config = Qwen3VLConfig(text_config=text, vision_config=dict(
        VISION, out_hidden_size=text["hidden_size"]), tie_word_embeddings=False)
    parts = {"text_encoder": Qwen3VLForConditionalGeneration(config),
             "transformer": MiniMaxH3Transformer3DModel(**spec["dit"] | dict(
                 text_dim=text["hidden_size"])),
             "vae": AutoencoderKLMiniMaxH3(**spec["vae"]),
             "audio_vae": AutoencoderKLMiniMaxH3Audio(**spec["audio"])}
    return {folder: (fill_audio if folder == "audio_vae" else fill)(m, spec["weights"])
            for folder, m in parts.items()}


def make_schedulers():
    return {"scheduler": MiniMaxH3Scheduler(shift=12.0),
            "audio_scheduler": MiniMaxH3Scheduler(shift=3.0)}


def make_model(name, out):
    """Configurations and the tokenizer."""
    if out.exists():
        shutil.rmtree(out)
    index = {"_class_name": "MiniMaxH3ModularPipeline", "_blocks_class_name": "MiniMaxH3Blocks",
             "tokenizer": ["transformers", "Qwen2TokenizerFast", {"subfolder": "tokenizer"}]}
    for folder, m in make_parts(name).items():
        configure(m, out / folder)
        index[folder] = ["transformers" if folder == "text_encoder" else "diffusers",
                         type(m).__name__, {"subfolder": folder}]
    for folder, m in make_schedulers().items():
        m.save_pretrained(out / folder)
        index[folder] = ["diffusers", type(m).__name__, {"subfolder": folder}]
    make_tokenizer(out / "tokenizer")
    (out / "modular_model_index.json").write_text(json.dumps(index))
    tidy(out, {})


class Processor:
    """What the pipeline calls of Qwen3VLProcessor for texts without images."""

    def create_mm_token_type_ids(self, ids):
        return [[0] * len(row) for row in ids]


def load(model, out):
    MiniMaxH3ModularPipeline.min_duration = 0.0
    pipe = MiniMaxH3Blocks().init_pipeline()
    tokenizer = load_tokenizer(out / model / "tokenizer", False)
    pipe.update_components(tokenizer=tokenizer, **make_schedulers(), **make_parts(model))
    pipe.processor = Processor()
    pipe.set_progress_bar_config(disable=True)
    return pipe


def unpack(rows, c, grid):
    """[N,C p p] -> [C,T,h,w]"""
    p = c.patch_size[1]
    z = rows.reshape(grid[0], grid[1] // p, grid[2] // p, c.in_channels, p, p)
    return z.permute(3, 0, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)


def run_prompt(pipe, r, i, out):
    """The latents [C,T,h,w] before each step and at the end, and the frames."""
    trail, grid = [], None

    def watch(module, args, kwargs):
        trail.append((kwargs["hidden_states"][0].clone(),
                      kwargs["audio_hidden_states"][0].clone()))
    hook = pipe.transformer.register_forward_pre_hook(watch, with_kwargs=True)
    state = pipe(prompt=r["prompts"][i], height=r["height"], width=r["width"],
                 num_frames=r["frames"], num_inference_steps=r["steps"], output_type="pt",
                 generator=torch.Generator("cpu").manual_seed(r["seed"] + i))
    hook.remove()
    z, sound = state.get("latents"), state.get("audio_latents")
    grid = z.shape[2:]
    videos = [unpack(rows, pipe.transformer.config, grid) for rows, _ in trail] + [z[0]]
    sounds = [rows for _, rows in trail] + [sound.transpose(1, 2).flatten(0, 1)]
    out[f"audio_noise.{i}"] = sounds[0][None]
    for step, rows in enumerate(sounds[1:]):
        out[f"audio_latents.{i}.{step}"] = rows[None]
    out[f"audio.{i}"] = state.get("audio")[0].T.contiguous()
    if i == 0:
        out["ids"] = torch.tensor(pipe.tokenizer(
            r["prompts"][0], add_special_tokens=False)["input_ids"]).int()
        out["prompt_embeds"] = state.get("prompt_embeds")[0]
    return videos, state.get("videos")[0]


def run(name, out_dir):
    r = dict(model=name) | RUNS[name]
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    pipe, out = load(r["model"], out_dir), {}
    count = len(r["prompts"])
    made = [run_prompt(pipe, r, i, out) for i in range(count)]
    levels = [1000 * float(s) for s in pipe.scheduler.sigmas]
    trail = [(t, torch.stack([videos[k + 1] for videos, _ in made]))
             for k, t in enumerate(levels[:-1])]
    keep_frames(name, r, out, trail, [videos[0] for videos, _ in made],
                [frames for _, frames in made], order=FRAMES_FIRST)
    save_run(d, name, r["model"], {
        "weights": MODELS[r["model"]]["weights"], "prompts": r["prompts"], "negative_prompt": "",
        "width": r["width"], "height": r["height"], "num_frames": r["frames"],
        "num_inference_steps": r["steps"], "guidance_scale": 1.0, "seed": r["seed"],
        "num_images_per_prompt": 1, "images": count, "max_sequence_length": 0, "scheduler": None,
        "tiling": False, "resolution_binning": False}, out)


def make(names, options):
    quiet()
    with torch.no_grad():
        for name in FORMS if "forms" in names else ():
            run_form(name, options.out)
        for name in AUDIO if "audio" in names else ():
            run_audio(name, options.out)
    make_each([n for n in names if n in RUNS], options.out, MODELS, make_model, run)
