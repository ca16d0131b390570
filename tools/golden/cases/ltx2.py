"""LTX-2: the transformer alone, the connectors of its text, and whole requests.

ltx2-forms/NAME has the results of the transformer alone, with the random weights of fill.py: tokens
of the video [N,C] and of the audio [M,C]; rows of text [m,2E], with the features for the video
before those for the audio; the predictions of all tokens in the same order, with attention between
video and audio ("out") and without it ("isolated").

ltx2-connectors/NAME has the connectors' rows [n,E+E'] of the hidden states [m,L,E] of a text, whose
padding to n places is left out.

ltx2-audio/NAME has the rows that the decoder of spectrograms, or the vocoder, makes of others: the
decoder of latents [t,C m] as its input is normalized, the vocoder of a spectrogram [t,C m].

The other folders are whole requests; layout and names of tensors as in video.py, with latents
[T,C,h,w], those of audio [C,t,m] and samples "audio" [n,channels]. Embeddings have the features for
the video before those for the audio, ids have no padding.
"""
import json
import shutil

import numpy as np
import torch
from diffusers import (AutoencoderKLLTX2Audio, AutoencoderKLLTX2Video,
                       FlowMatchEulerDiscreteScheduler, LTX2ConditionPipeline,
                       LTX2ImageToVideoPipeline, LTX2Pipeline, LTX2VideoTransformer3DModel)
from diffusers.pipelines.ltx2 import pipeline_ltx2_condition, pipeline_ltx2_image2video
from diffusers.pipelines.ltx2.connectors import LTX2TextConnectors
from diffusers.pipelines.ltx2.latent_upsampler import LTX2LatentUpsamplerModel
from diffusers.pipelines.ltx2.pipeline_ltx2_condition import LTX2VideoCondition
from diffusers.pipelines.ltx2.vocoder import LTX2Vocoder, LTX2VocoderWithBWE
from safetensors.torch import save_file
from transformers import Gemma3TextConfig, Gemma3TextModel

from ..common import make_each, make_image, quiet, save_run, tidy
from ..fill import configure, fill, weights
from ..lm_vocab import gemma
from .ltx import SCHEDULER
from .ltx_vae import SECOND
from .lumina2 import load_tokenizer
from .video import keep_frames
from .wan import FRAMES_FIRST

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
    # as LTX-2.3
    "gated": (dict(SMALL, gated_attn=True, audio_gated_attn=True, cross_attn_mod=True,
                   audio_cross_attn_mod=True, perturbed_attn=True, use_prompt_embeddings=False),
              (2, 3, 5), 7, 24.0, 15),
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
CONNECTORS["gated"] = (CONNECTORS["apart"][0] | dict(
    video_gated_attn=True, audio_gated_attn=True, rope_type="split"), 8, 5)
# for whole requests: 4 states of Gemma and the widths of the transformer
CONNECTORS["both"] = (CONNECTORS["gated"][0] | dict(
    text_proj_in_factor=4, video_hidden_dim=48, video_connector_attention_head_dim=16,
    audio_hidden_dim=24, audio_connector_num_attention_heads=3,
    audio_connector_attention_head_dim=8), 12, 5)


WORDS = ["a large red circle on a blue background and a loud bell"] * 3
GEMMA = dict(vocab_size=480, hidden_size=20, intermediate_size=27, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, head_dim=10, query_pre_attn_scalar=14,
             sliding_window=4, max_position_embeddings=1024,
             layer_types=["sliding_attention", "full_attention", "sliding_attention"],
             rope_parameters=dict(
                 full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e6),
                 sliding_attention=dict(rope_type="default", rope_theta=1e4)))
# 8 channels of 2 mel bins
WIDE = dict(in_channels=16, out_channels=16, audio_in_channels=16, audio_out_channels=16)
VAE = SECOND | dict(latent_channels=16, patch_size=4, spatial_compression_ratio=32)
AUDIO_VAE = dict(base_channels=16, ch_mult=(1, 1, 2), num_res_blocks=1, latent_channels=8,
                 mel_bins=8)
VOCODER = dict(in_channels=16, hidden_channels=24, upsample_kernel_sizes=[8, 7, 4],
               upsample_factors=[4, 3, 2], resnet_kernel_sizes=[3, 5],
               resnet_dilations=[[1, 3], [1, 2]])
# 5 samples of a row at 4 kHz; rows of spectrograms every 8 samples become 24 samples at 12 kHz
WIDE_VOCODER = dict(in_channels=16, hidden_channels=24, upsample_kernel_sizes=[9],
                    upsample_factors=[5], resnet_kernel_sizes=[3, 5],
                    resnet_dilations=[[1, 3], [1, 2]], bwe_in_channels=6, bwe_hidden_channels=12,
                    bwe_upsample_kernel_sizes=[12, 8], bwe_upsample_factors=[6, 4],
                    bwe_resnet_kernel_sizes=[3], bwe_resnet_dilations=[[1, 2]], filter_length=12,
                    window_length=12, hop_length=8, num_mel_channels=3, input_sampling_rate=4000,
                    output_sampling_rate=12000)
# as LTX-2.3: the text has the streams' widths, and a block can be perturbed
GATED = SMALL | WIDE | dict(
    gated_attn=True, audio_gated_attn=True, cross_attn_mod=True, audio_cross_attn_mod=True,
    perturbed_attn=True, use_prompt_embeddings=False)
# for ltx2_up.py, in the folder of ltx2
UPSAMPLER = dict(in_channels=16, mid_channels=32, num_blocks_per_stage=1)
MODELS = {
    "ltx2": dict(dit=SMALL | WIDE, connectors="joint", weights="bf16"),
    "ltx2-five": dict(dit=FIVE | WIDE | dict(rope_type="interleaved"), connectors="joint",
                      weights="f16"),
    "ltx23": dict(dit=GATED, connectors="both", vocoder=WIDE_VOCODER, weights="bf16",
                  vae=dict(decoder_spatial_padding_mode="zeros")),
}
# arguments of the pipeline that turn its default guidance off
OFF = dict(audio_guidance_scale=1.0, guidance_rescale=0.0, audio_guidance_rescale=0.0,
           stg_scale=0.0, audio_stg_scale=0.0, modality_scale=1.0, audio_modality_scale=1.0)
RUNS = {
    "ltx2": dict(prompts=["  A large Red circle, a loud bell "], negative_prompt="a green ring",
                 width=160, height=96, frames=9, steps=5, seed=7),
    "ltx2-five": dict(prompts=["a purple ring", "two stars"], width=64, height=96, frames=15,
                      steps=4, seed=40, guidance=1.0, frame_rate=30, own=OFF),
    # guided only by the pass in which the streams are apart, and more in one stream
    "ltx2-apart": dict(model="ltx2", prompts=["a small ring"], width=96, height=64, frames=17,
                       steps=3, seed=11, guidance=1.0,
                       own=OFF | dict(modality_scale=2.5, audio_modality_scale=1.75,
                                      guidance_rescale=0.25, audio_guidance_rescale=0.9)),
    # all four passes, and the vocoder with its second network
    "ltx23": dict(prompts=["  A small ring, a Loud bell "], negative_prompt="a green ring",
                  width=96, height=160, frames=9, steps=4, seed=23,
                  own=dict(spatio_temporal_guidance_blocks=[1])),
    # from an image that is not compressed by a codec
    "ltx23-i2v": dict(model="ltx23", prompts=["a blue square"], negative_prompt="red", width=160,
                      height=96, frames=17, steps=4, seed=29, image=(210, 70),
                      own=dict(spatio_temporal_guidance_blocks=[0])),
    # an image at frame 0, a video at latent frame 1, and an image at the last latent frame
    "ltx2-cond": dict(model="ltx2", prompts=["a blue ring"], negative_prompt="red", width=96,
                      height=64, frames=25, steps=4, seed=31,
                      given=[dict(image=(70, 37), strength=0.8),
                             dict(clip=20, index=1, strength=0.6),
                             dict(image=(33, 51), index=-1)]),
    "ltx23-last": dict(model="ltx23", prompts=["a star, a Loud bell"], negative_prompt="a ring",
                       width=64, height=96, frames=17, steps=4, seed=33,
                       own=dict(spatio_temporal_guidance_blocks=[1]),
                       given=[dict(image=(40, 60)), dict(image=(90, 110), index=-1)]),
}


# networks of audio, and the number of rows of their input
AUDIO = {
    "spectrogram": (AutoencoderKLLTX2Audio, dict(base_channels=6, ch_mult=(1, 2, 3),
                                                 num_res_blocks=1, latent_channels=3, mel_bins=8),
                    5),
    "vocoder": (LTX2Vocoder, dict(in_channels=6, hidden_channels=20,
                                  upsample_kernel_sizes=[8, 7], upsample_factors=[3, 2],
                                  resnet_kernel_sizes=[3, 5, 7],
                                  resnet_dilations=[[1, 3], [1, 2, 5], [4]]), 7),
    "snake": (LTX2Vocoder, dict(in_channels=6, hidden_channels=12, upsample_kernel_sizes=[5],
                                upsample_factors=[3], resnet_kernel_sizes=[3, 5],
                                resnet_dilations=[[1, 3], [2]], act_fn="snake",
                                antialias_kernel_size=24, antialias_ratio=3, antialias=True,
                                final_act_fn="clamp", final_bias=False), 5),
    # only the last activation has filters
    "unfiltered": (LTX2Vocoder, dict(in_channels=6, hidden_channels=8, upsample_kernel_sizes=[4],
                                     upsample_factors=[2], resnet_kernel_sizes=[3],
                                     resnet_dilations=[[1, 2]], act_fn="snakebeta",
                                     final_act_fn=None), 6),
    "wide": (LTX2VocoderWithBWE, WIDE_VOCODER | dict(bwe_final_act_fn="tanh"), 5),
}


def set_weights(model, computed=()):
    """Sets all tensors except buffers whose names end with one of `computed`."""
    stored = model.state_dict()
    for n, p in [*model.named_parameters(), *model.named_buffers()]:
        if n not in stored or n.endswith(computed):
            continue
        small = p.ndim == 1 or n.endswith(("scale_shift_table", "registers", "filter",
                                           "basis"))
        gain = 0.1 if small else 0.9 / np.sqrt(np.float32(p[0].numel()))
        p.data.copy_(weights(n, p.shape, gain, 1.0 if p.ndim == 1 and
                             n.endswith(("weight", "std")) else 0.0))
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


def run_audio(name, out):
    kind, config, n = AUDIO[name]
    model = set_weights(kind(**config))
    decodes = kind is AutoencoderKLLTX2Audio
    C = config["base_channels"] if decodes else config["in_channels"]
    rows = torch.randn(1, n, C, generator=torch.Generator().manual_seed(37))
    if decodes:
        z = rows * model.latents_std + model.latents_mean
        z = z.unflatten(2, (config["latent_channels"], -1)).transpose(1, 2)
        y = model.decode(z, return_dict=False)[0].transpose(1, 2).flatten(2)
    else:
        y = model(rows.unflatten(2, (2, -1)).transpose(1, 2)).transpose(1, 2)
    save_form(out / "ltx2-audio" / name, model, {"in": rows[0], "out": y[0].contiguous()})
    print(f"{name}: {n} rows, {y.shape[1]} of {y.shape[2]}, {y.std():.3f}")


def run_form(name, out):
    config, (T, H, W), M, fps, held = FORMS[name]
    model = set_weights(LTX2VideoTransformer3DModel(**config))
    c, g, m, N = model.config, torch.Generator().manual_seed(29), 7, T * H * W
    z = torch.randn(1, N, c.in_channels, generator=g)
    a = torch.randn(1, M, c.audio_in_channels, generator=g)
    widths = ([c.caption_channels] * 2 if c.use_prompt_embeddings else
              [c.cross_attention_dim, c.audio_cross_attention_dim])
    text = torch.randn(1, m, sum(widths), generator=g)
    t = torch.tensor([613.0])
    times = t if not held else torch.where(torch.arange(N) < held, 0.0, t)[None]
    y = {key: torch.cat(model(z, a, *text.split(widths, -1), times, t, t,
                              num_frames=T, height=H, width=W, fps=fps, audio_num_frames=M,
                              isolate_modalities=key == "isolated", use_cross_timestep=True,
                              spatio_temporal_guidance_blocks=[1] * (key == "perturbed"),
                              return_dict=False), 1)[0]
         for key in ["out", "isolated"] + ["perturbed"] * c.perturbed_attn}
    save_form(out / "ltx2-forms" / name, model, {
        "latents": z[0], "audio": a[0], "text": text[0], "time": t, "fps": torch.tensor([fps]),
        "grid": torch.tensor([T, H, W], dtype=torch.float32),
        "held": torch.tensor([float(held)])} | y)
    print(f"{name}: {N} and {M} tokens, {y['out'].std():.2f}")


# ---- models --------------------------------------------------------------------------------------

def make_parts(name):
    spec = MODELS[name]
    parts = dict(text_encoder=Gemma3TextModel(Gemma3TextConfig(**GEMMA)),
                 connectors=LTX2TextConnectors(**CONNECTORS[spec["connectors"]][0] | dict(
                     audio_connector_num_learnable_registers=4)),
                 transformer=LTX2VideoTransformer3DModel(**spec["dit"]),
                 vae=AutoencoderKLLTX2Video(**VAE | spec.get("vae", {})),
                 audio_vae=AutoencoderKLLTX2Audio(**AUDIO_VAE),
                 vocoder=LTX2VocoderWithBWE(**spec["vocoder"]) if "vocoder" in spec else
                 LTX2Vocoder(**VOCODER))
    return {folder: fill(m, spec["weights"]) for folder, m in parts.items()}


def make_upsampler():
    return fill(LTX2LatentUpsamplerModel(**UPSAMPLER), MODELS["ltx2"]["weights"])


def make_model(name, out):
    """Configurations and the tokenizer."""
    if out.exists():
        shutil.rmtree(out)
    index = {"_class_name": "LTX2Pipeline", "tokenizer": ["transformers", "GemmaTokenizerFast"],
             "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"]}
    room = dict(text_encoder="transformers", connectors="ltx2", vocoder="ltx2")
    for folder, m in make_parts(name).items():
        configure(m, out / folder)
        index[folder] = [room.get(folder, "diffusers"), type(m).__name__]
    if name == "ltx2":
        configure(make_upsampler(), out / "latent_upsampler")
    gemma(out / "tokenizer", WORDS, 60)
    FlowMatchEulerDiscreteScheduler(**SCHEDULER).save_pretrained(out / "scheduler")
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


# ---- runs ----------------------------------------------------------------------------------------

def record_text(pipe, r, out):
    for prefix, text in (("", r["prompts"][0]), ("negative_", r["negative_prompt"]))[
            :1 + (r["guidance"] > 1)]:
        rows, mask, _, _ = pipe.encode_prompt(text, None, False,
                                              max_sequence_length=r["max_sequence_length"])
        video, audio, _ = pipe.connectors(rows, mask, padding_side="left")
        out[prefix + "ids"] = pipe.tokenizer(
            text.strip(), max_length=r["max_sequence_length"], truncation=True,
            return_tensors="pt").input_ids[0].int()
        assert len(out[prefix + "ids"]) == mask.sum()
        out[prefix + "prompt_embeds"] = torch.cat([video, audio], -1)[0].contiguous()


def make_condition(c, r, i, d):
    """A given image or video, whose file or folder is image.png, image_2.png, last.png or video."""
    place = dict(index=c.get("index", 0), strength=c.get("strength", 1.0), crf=0)
    if "image" in c:
        image = make_image(c["image"], r["seed"] + i)
        image.save(d / ("last.png" if place["index"] < 0 else "image_2.png" if i else "image.png"))
        return LTX2VideoCondition(frames=image, **place)
    video = [make_image((50, 40), r["seed"] + 10 + k) for k in range(c["clip"])]
    (d / "video").mkdir(exist_ok=True)
    for k, frame in enumerate(video):
        frame.save(d / "video" / f"{k}.png")
    return LTX2VideoCondition(frames=video, **place)


def condition_notes(r):
    """Latent frame k after the first one begins at frame 8 k - 7."""
    given = r.get("given", [])
    placed = [c for c in given if c.get("index", 0) >= 0]
    notes = {"image": 1, "more_images": len(placed) - 1,
             "frame_index": ",".join(str(max(0, 8 * c.get("index", 0) - 7)) for c in placed),
             "condition_strength": ",".join(str(c.get("strength", 1.0)) for c in given)}
    return ((notes if given else {}) | ({"last_image": 1} if len(given) > len(placed) else {})
            | ({"clip": 1} if any("clip" in c for c in given) else {}))


def run(name, out_dir):
    r = dict(model=name, negative_prompt="", guidance=3.0, frame_rate=24, own={},
             max_sequence_length=12) | RUNS[name]
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    where, spec = out_dir / r["model"], MODELS[r["model"]]
    pipe = (LTX2ImageToVideoPipeline if "image" in r else
            LTX2ConditionPipeline if "given" in r else LTX2Pipeline)(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(where / "scheduler"),
        tokenizer=load_tokenizer(where / "tokenizer"), **make_parts(r["model"]))
    pipe.tokenizer_padding_side = "left"        # as in the published tokenizers
    pipe.set_progress_bar_config(disable=True)
    pipe._callback_tensor_inputs = ["latents", "audio_latents"]
    count = len(r["prompts"])
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail, noise = {}, [], []
    record_text(pipe, r, out)
    grid = [(r["frames"] - 1) // pipe.vae_temporal_compression_ratio + 1,
            *(r[k] // pipe.vae_spatial_compression_ratio for k in ("height", "width"))]

    def unpack(z):
        z = z.transpose(1, 2).reshape(z.shape[0], z.shape[2], -1, *grid[1:])
        return torch.cat([z[:, :, grid[0]:], z[:, :, :grid[0]]], 2)     # given frames first

    def unpack_audio(z):
        return z.unflatten(2, (AUDIO_VAE["latent_channels"], -1)).transpose(1, 2).contiguous()
    video, sound = pipe.prepare_latents, pipe.prepare_audio_latents

    def kept(*args, **kwargs):
        z = sound(*args, **kwargs)
        for i in range(count):
            out[f"audio_noise.{i}"] = unpack_audio(z)[i]
        return z

    def first(*args, **kwargs):
        z = video(*args, **kwargs)
        if "image" not in r and "given" not in r:
            noise.append(unpack(z.clone()))
        return z

    def drawn(*args, **kwargs):         # before the image replaces the first frame
        noise.append(draw(*args, **kwargs))
        return noise[-1].clone()

    def drawn_tokens(*args, **kwargs):
        z = draw(*args, **kwargs)
        noise.append(unpack(z.clone()) if not noise else None)
        return z
    draw, given = pipeline_ltx2_image2video.randn_tensor, {}
    pipeline_ltx2_image2video.randn_tensor = drawn
    pipeline_ltx2_condition.randn_tensor = drawn_tokens
    if "given" in r:
        given = dict(conditions=[make_condition(c, r, i, d) for i, c in enumerate(r["given"])])
    if "image" in r:
        given = dict(image=make_image(r["image"], r["seed"]), image_crf=0)
        given["image"].save(d / "image.png")
    pipe.prepare_latents, pipe.prepare_audio_latents = first, kept

    def keep(p, step, t, kw):
        trail.append((float(t), unpack(kw["latents"].clone())))
        for i in range(count):
            out[f"audio_latents.{i}.{step}"] = unpack_audio(kw["audio_latents"].clone())[i]
        return {}
    result = pipe(prompt=r["prompts"], negative_prompt=[r["negative_prompt"]] * count,
                  num_inference_steps=r["steps"], guidance_scale=r["guidance"],
                  num_frames=r["frames"],
                  height=r["height"], width=r["width"], frame_rate=r["frame_rate"],
                  generator=gens if count > 1 else gens[0], output_type="pt",
                  callback_on_step_end=keep,
                  callback_on_step_end_tensor_inputs=["latents", "audio_latents"],
                  max_sequence_length=r["max_sequence_length"], **r["own"], **given)
    pipeline_ltx2_image2video.randn_tensor = pipeline_ltx2_condition.randn_tensor = draw
    for i, wave in enumerate(result.audio):
        out[f"audio.{i}"] = wave.T.contiguous()
    keep_frames(name, r, out, trail, noise[0], result.frames, order=FRAMES_FIRST)
    save_run(d, name, r["model"], {
        "weights": spec["weights"], "prompts": r["prompts"],
        "negative_prompt": r["negative_prompt"], "width": r["width"], "height": r["height"],
        "num_frames": r["frames"], "num_inference_steps": r["steps"],
        "guidance_scale": r["guidance"], "seed": r["seed"], "num_images_per_prompt": 1,
        "images": count, "max_sequence_length": r["max_sequence_length"], "scheduler": None,
        "tiling": False, "resolution_binning": False}
        | {k: ",".join(map(str, v)) if isinstance(v, list) else v for k, v in r["own"].items()}
        | ({"fps": r["frame_rate"]} if r["frame_rate"] != 24 else {})
        | ({"image": 1} if "image" in r else {}) | condition_notes(r), out)


def make(names, options):
    quiet()
    with torch.no_grad():
        for name in FORMS if "forms" in names else ():
            run_form(name, options.out)
        for name in CONNECTORS if "connectors" in names else ():
            run_connectors(name, options.out)
        for name in AUDIO if "audio" in names else ():
            run_audio(name, options.out)
    make_each([n for n in names if n in RUNS], options.out, MODELS, make_model, run)
