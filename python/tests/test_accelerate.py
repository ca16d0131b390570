"""Pipelines of diffusers that compute with xdit: the images of tiny models of every family, what is
refused, memory. Needs torch and diffusers; XDIT_TINY_MODELS names the models."""
import json
import os
import pathlib

import numpy as np
import pytest

import xdit

ROOT = pathlib.Path(__file__).parents[2]
PROMPT = "a large red circle on a blue background"
# Cases with another pipeline of a model: the model, and the class of the pipeline.
OTHERS = {"sana-video-i2v": ("sana-video", "SanaImageToVideoPipeline")}
# Models whose autoencoder stays that of torch.
KEEP_VAE = ("qwen21",)
LEVELS = 2                      # of 255, that images may be apart
# Models, and arguments of their calls beside those of golden.json.
CASES = {
    "flux": {"negative_prompt": "a star", "true_cfg_scale": 2.0},
    "flux-schnell": {},
    "kontext": {"image": 1, "_auto_resize": False},
    "flux-fill": {"image": 1, "mask_image": 1},
    "flux-control": {"control_image": 1},
    "flux-controlnet": {"control_image": 1, "controlnet_conditioning_scale": 0.8},
    "flux-controlnet-pixels": {"control_image": 1, "prompt": [PROMPT, "a star"]},
    "alpha": {},
    "micro": {"num_images_per_prompt": 2},
    "sigma": {},
    "demo-pixart": {},
    "sd3": {},
    "sd35": {"prompt": [PROMPT, "a star"]},
    "hunyuan": {},
    "hunyuan12": {},
    "zimage": {"guidance_scale": 3.0},
    "lumina2": {},
    "krea2": {"guidance_scale": 2.0, "negative_prompt": "a star"},
    "chroma": {"negative_prompt": "a star"},
    "auraflow": {"negative_prompt": "a star"},
    "flux2-klein": {},
    "qwen": {"negative_prompt": " ", "true_cfg_scale": 4.0},
    "qwen21": {"negative_prompt": "a star", "true_cfg_scale": 4.0},
    "latte": {"video_length": 5, "clean_caption": False},
    "hunyuanvideo15": {"num_frames": 5, "negative_prompt": 'a "star"'},
    "hunyuanvideo15-i2v": {"num_frames": 5, "image": 1, "negative_prompt": "a star"},
    "hunyuanvideo": {"num_frames": 5, "negative_prompt": "a star", "true_cfg_scale": 3.0},
    "hunyuanvideo-i2v": {"num_frames": 5, "image": 1, "image_tokens": 25},
    "hunyuanvideo-i2v-33ch": {"num_frames": 9, "image": 1, "image_tokens": 25},
    "cog2b": {},
    "mochi": {},
    "cog5b": {},
    "cog5b-i2v": {"image": 1},
    "cog15": {},
    "cog15-i2v": {"image": 1},
    "wan": {},
    "wan-i2v": {"image": 1},
    "vace": {"video": 1, "reference_images": 1},
    "wan22": {},
    "sana": {"height": 64, "width": 96},
    "sana-sprint": {"height": 64, "width": 96},
    "sana-video": {"frames": 5, "height": 64, "width": 96},
    "sana-video-i2v": {"frames": 5, "height": 64, "width": 96, "image": 1},
    "skyreels": {},
    "skyreels-df": {"fps": 16},
    "skyreels-i2v": {"image": 1},
    "wan-ti2v": {"image": 1},
    "sdxl": {"negative_prompt": "a star", "original_size": (200, 100),
             "crops_coords_top_left": (16, 3)},
    "sdxl-turbo": {"num_images_per_prompt": 2, "width": 40, "height": 56},
    "sdxl-lcm": {"guidance_scale": 8.0, "width": 40, "height": 48},
    "sd": {"negative_prompt": "a star", "width": 40, "height": 48},
    "sd2": {"negative_prompt": "a star", "width": 56, "height": 40},
}


@pytest.fixture(autouse=True)
def torch():
    """torch, with diffusers beside it."""
    module = pytest.importorskip("torch", reason="there is no torch")
    diffusers = pytest.importorskip("diffusers", reason="there is no diffusers")
    pytest.importorskip("transformers", reason="there is no transformers")
    diffusers.utils.logging.set_verbosity_error()
    diffusers.utils.logging.disable_progress_bar()
    module.manual_seed(0)
    return module


def folder(name):
    tiny = os.environ.get("XDIT_TINY_MODELS")
    if not tiny:
        pytest.skip("XDIT_TINY_MODELS names no folder")
    return ROOT / "models" / name if name == "demo-pixart" else pathlib.Path(tiny) / name


def text_processor(path):
    """A processor without that of images, which the tiny models do not have."""
    import transformers

    class Texts(transformers.Qwen3VLProcessor):
        def __init__(self):
            self.tokenizer = transformers.Qwen2TokenizerFast.from_pretrained(path)

        def apply_chat_template(self, messages, **more):
            return [self.tokenizer("".join(
                f"<|im_start|>{m['role']}\n{m['content'][0]['text']}<|im_end|>\n"
                for m in messages)).input_ids]

        def __call__(self, text, **more):
            return self.tokenizer(text, **more)
    return Texts()


def load(torch, name, dtype=None):
    """The pipeline of a tiny model in f32."""
    import diffusers
    model, kind = OTHERS.get(name, (name, "DiffusionPipeline"))
    path, more = folder(model), {}
    if name in ("qwen", "krea2"):               # their files lack what images do not need
        more["vae"] = diffusers.AutoencoderKLQwenImage.from_pretrained(
            path / "vae", low_cpu_mem_usage=False)
    if name == "qwen21":
        more["processor"] = text_processor(path / "processor")
    pipe = getattr(diffusers, kind).from_pretrained(
        path, torch_dtype=dtype or torch.float32, **more)
    pipe.set_progress_bar_config(disable=True)
    if name == "lumina2":       # takes 8 pixels per latent for granted
        pipe.vae_scale_factor = 4
    if name == "mochi":         # the files have no encoder
        pipe.vae.encoder.to_empty(device="cpu")
    if name == "chroma":        # see _forwards: as the model was trained
        plain = pipe._prepare_attention_mask
        pipe._prepare_attention_mask = lambda *a, **k: plain(*a, **k).bool()
    return pipe


def arguments(name):
    from PIL import Image
    file = ROOT / "tests" / "golden" / name / "golden.json"
    request = json.loads(file.read_text()) if file.exists() else {}
    args = {k: request[k] for k in ("width", "height", "num_frames", "max_sequence_length")
            if request.get(k)}
    more = dict(CASES[name])
    ramp = np.add.outer(np.arange(64), 2 * np.arange(64)).astype(np.uint8)
    for key in ("image", "mask_image", "control_image"):
        if key in more:
            more[key] = Image.fromarray(np.stack([ramp, ramp.T, 255 - ramp], -1))
    if "image_tokens" in more:                                  # of a smaller text encoder
        from diffusers.pipelines.hunyuan_video import pipeline_hunyuan_video_image2video as module
        n = more.pop("image_tokens")
        more["prompt_template"] = module.DEFAULT_PROMPT_TEMPLATE | {"image_emb_end": 5 + n,
                                                                    "image_emb_len": n}
    if "video" in more:
        start = Image.fromarray(np.stack([ramp, ramp.T, 255 - ramp], -1))
        more["video"] = [start.resize((args["width"], args["height"]))] * args["num_frames"]
        more["reference_images"] = [start]
    return {"prompt": PROMPT, "num_inference_steps": 2, **args, **more}


def run(torch, pipe, name, **more):
    """Levels of the images or frames that a call makes."""
    import inspect
    args = {**arguments(name), **more}
    takes = inspect.signature(pipe.__call__).parameters
    args = {k: v for k, v in args.items() if k in takes}
    if "use_resolution_binning" in takes:
        args["use_resolution_binning"] = False
    out = pipe(generator=torch.Generator().manual_seed(3), output_type="np", **args)
    return np.asarray(out.images if hasattr(out, "images") else out.frames) * 255


def apart(a, b):
    assert a.shape == b.shape and np.isfinite(b).all() and a.std() > 5
    return np.abs(np.rint(a) - np.rint(b)).max()


@pytest.mark.parametrize("name", CASES)
def test_the_same_image(torch, name, monkeypatch):
    if name.startswith(("wan-i2v", "skyreels")):
        pytest.importorskip("ftfy", reason="diffusers' pipeline needs ftfy")
    pipe = load(torch, name)
    plain = run(torch, pipe, name)
    threads = torch.get_num_threads()
    own = name in KEEP_VAE
    assert xdit.accelerate(pipe, vae=not own) is pipe
    with monkeypatch.context() as m:

        def fails(*args, **kwargs):
            raise AssertionError("torch computes")
        for part in (getattr(pipe, n, None) for n in ("transformer", "transformer_2", "unet")):
            if part is not None:
                m.setattr(type(part), "forward", fails)
        if not own:
            m.setattr(type(pipe.vae), "decode", fails)
            m.setattr(type(pipe.vae), "encode", fails)
        assert apart(plain, run(torch, pipe, name)) <= LEVELS
    assert torch.get_num_threads() == threads
    xdit.restore(pipe)
    assert np.array_equal(plain, run(torch, pipe, name))


@pytest.fixture(name="flux")
def flux_pipe(torch):
    return load(torch, "flux")


def test_weights_in_place_and_copied(torch, flux):
    in_place = run(torch, xdit.accelerate(flux), "flux")
    taken = flux.transformer._xdit.module.bytes
    xdit.restore(flux)
    copied = run(torch, xdit.accelerate(flux, copy=True), "flux")
    assert np.array_equal(in_place, copied)
    assert flux.transformer._xdit.module.bytes > 2 * taken


def test_released_weights(torch, flux, tmp_path):
    plain = run(torch, flux, "flux")
    xdit.accelerate(flux, release=True)
    assert sum(p.numel() for p in flux.transformer.parameters()) == 0
    assert flux.transformer.dtype == torch.float32 and flux.device == torch.device("cpu")
    assert apart(plain, run(torch, flux, "flux")) <= LEVELS
    for call in (lambda: xdit.restore(flux), lambda: flux.save_pretrained(tmp_path)):
        with pytest.raises(xdit.InvalidRequest, match="released.*load the pipeline again"):
            call()


@pytest.mark.parametrize("name", ["flux", "sdxl", "sd"])
@pytest.mark.parametrize("kind, most", [("int8", 8), ("fp8", 16), ("int4", 40)])
def test_small_weights(torch, name, kind, most):
    pipe = load(torch, name)
    plain = run(torch, pipe, name)
    xdit.accelerate(pipe, weights_dtype=kind)
    assert 0 < apart(plain, run(torch, pipe, name)) <= most


def test_bf16(torch):
    pipe = load(torch, "flux", torch.bfloat16)
    exact = run(torch, load(torch, "flux"), "flux")
    xdit.accelerate(pipe)
    assert apart(exact, run(torch, pipe, "flux")) <= 8
    assert pipe.transformer.dtype == torch.bfloat16
    assert pipe.vae.decode(torch.zeros(1, pipe.vae.config.latent_channels, 4, 4,
                                       dtype=torch.bfloat16)).sample.dtype == torch.bfloat16


def test_callbacks_change_latents(torch, flux):
    def halve(pipe, step, t, values):
        return {"latents": values["latents"] * 0.5}
    plain = run(torch, flux, "flux", callback_on_step_end=halve)
    unlike = run(torch, flux, "flux")
    xdit.accelerate(flux)
    assert apart(plain, run(torch, flux, "flux", callback_on_step_end=halve)) <= LEVELS
    assert apart(plain, unlike) > LEVELS


def test_other_texts_between_passes(torch):
    """What is kept of a text is not taken for another one's: six texts of four that are kept."""
    pipe = load(torch, "alpha")
    n, width = 7, pipe.transformer.config.caption_channels
    texts = torch.randn(6, n, width)
    mask = torch.ones(6, n)
    mask[2:, 5:] = 0
    args = {"hidden_states": torch.randn(6, 4, 8, 6), "timestep": torch.full([6], 500),
            "added_cond_kwargs": {"resolution": None, "aspect_ratio": None}, "return_dict": False}
    with torch.no_grad():
        plain = [pipe.transformer(encoder_hidden_states=t, encoder_attention_mask=mask, **args)[0]
                 for t in (texts, texts.flip(0), texts)]
        xdit.accelerate(pipe, vae=False)
        for want, t in zip(plain, (texts, texts.flip(0), texts)):
            got = pipe.transformer(encoder_hidden_states=t, encoder_attention_mask=mask, **args)[0]
            assert got.shape == want.shape
            assert (got - want)[:, :4].abs().max() <= 2e-4 * want.abs().max()
            assert (got[:, 4:] == 0).all()


def test_reference_images_of_two_numbers(torch):
    """FLUX.2 [dev] with two reference images behind the image, and a guidance scale."""
    import types
    import diffusers
    part = diffusers.Flux2Transformer2DModel.from_pretrained(folder("flux2") / "transformer",
                                                             torch_dtype=torch.float32)
    c, places = part.config, lambda t, h, w: torch.cartesian_prod(
        torch.tensor([t]), torch.arange(h), torch.arange(w), torch.tensor([0]))
    ids = torch.cat([places(0, 3, 4), places(10, 2, 5), places(20, 4, 1)])
    args = {"hidden_states": torch.randn(2, 26, c.in_channels),
            "img_ids": ids[None].repeat(2, 1, 1),
            "txt_ids": torch.cartesian_prod(*[torch.tensor([0])] * 3, torch.arange(7)),
            "timestep": torch.tensor([0.7, 0.2]), "guidance": torch.tensor([3.0, 5.0]),
            "encoder_hidden_states": torch.randn(2, 7, c.joint_attention_dim)}
    with torch.no_grad():
        want = part(**args).sample[:, :12]
    xdit.accelerate(types.SimpleNamespace(transformer=part))
    got = part(**args).sample
    assert got.shape == (2, 26, want.shape[2])
    assert (got[:, :12] - want).abs().max() <= 2e-4 * want.abs().max()


def test_layers_of_images(torch):
    """Qwen-Image-Layered with two layers and the image that is read; and what is refused."""
    import types
    import diffusers
    path = ROOT / "tests" / "golden" / "qwen-forms" / "layers"
    c = json.loads((path / "config.json").read_text())
    c.pop("_class_name")
    part = diffusers.QwenImageTransformer2DModel(**c).eval()
    shapes = [(1, 3, 4), (1, 3, 4), (1, 2, 5)]
    args = {"hidden_states": torch.randn(2, 34, c["in_channels"]), "img_shapes": [shapes] * 2,
            "encoder_hidden_states": torch.randn(2, 7, c["joint_attention_dim"]),
            "encoder_hidden_states_mask": None, "timestep": torch.tensor([0.7, 0.2]),
            "additional_t_cond": torch.tensor([0, 0])}
    with torch.no_grad():
        want = part(**args).sample[:, :24]
    xdit.accelerate(types.SimpleNamespace(transformer=part))
    got = part(**args).sample
    assert got.shape == (2, 34, want.shape[2])
    assert (got[:, :24] - want).abs().max() <= 2e-4 * want.abs().max()
    bad = [({"additional_t_cond": torch.tensor([0, 1])}, "additional_t_cond is not 0"),
           ({"img_shapes": [[(1, 3, 4), (1, 4, 3), (1, 2, 5)]]}, "layers of one size")]
    for change, words in bad:
        with refuses(words):
            part(**{**args, **change})


def test_inputs_of_unets(torch):
    """A U-Net with rows of other guidance scales, sizes and crops; and what is refused."""
    import types
    import diffusers
    part = diffusers.UNet2DConditionModel.from_pretrained(folder("sdxl-lcm") / "unet",
                                                          torch_dtype=torch.float32)
    c = part.config
    scales = diffusers.StableDiffusionXLPipeline.get_guidance_scale_embedding(
        None, torch.tensor([7.0, 0.75]), c.time_cond_proj_dim)
    added = {"text_embeds": torch.randn(2, 16), "time_ids": torch.tensor(
        [[200.0, 100, 16, 3, 80, 90], [40, 50, 0, 0, 40, 50]])}
    args = {"sample": torch.randn(2, 4, 9, 7), "timestep": torch.tensor([700, 20]),
            "encoder_hidden_states": torch.randn(2, 11, c.cross_attention_dim),
            "timestep_cond": scales, "added_cond_kwargs": added}
    with torch.no_grad():
        want = part(**args).sample
    xdit.accelerate(types.SimpleNamespace(unet=part))
    assert (part(**args).sample - want).abs().max() <= 2e-4 * want.abs().max()
    bad = [({"timestep_cond": None}, xdit.InvalidRequest, "guidance is nan"),
           ({"added_cond_kwargs": {}}, xdit.InvalidRequest, "text_embeds and time_ids"),
           ({"added_cond_kwargs": {**added, "time_ids": torch.ones(2, 5)}}, xdit.Unsupported,
            "time_ids has 5 numbers"),
           ({"added_cond_kwargs": {**added, "image_embeds": [1]}}, xdit.Unsupported,
            "has image_embeds"),
           ({"mid_block_additional_residual": torch.ones(1)}, xdit.Unsupported,
            "mid_block_additional_residual")]
    for change, kind, words in bad:
        with refuses(words, kind):
            part(**{**args, **change})


def test_rate_of_frames(torch):
    """A transformer whose positions depend on the frame rate, and an autoencoder of torch."""
    CASES["ltx"] = {"frame_rate": 30, "num_frames": 9}
    pipe = load(torch, "ltx")
    want = run(torch, pipe, "ltx")
    xdit.accelerate(pipe, vae=False)
    assert apart(want, run(torch, pipe, "ltx")) <= 1
    assert apart(want, run(torch, pipe, "ltx", frame_rate=5)) > 1


@pytest.mark.parametrize("name", ["alpha", "cog5b", "wan", "hunyuanvideo", "flux2-klein"])
def test_autoencoders(torch, name):
    pipe = load(torch, name)
    video = pipe.vae.__class__.__name__ in ("AutoencoderKLCogVideoX", "AutoencoderKLWan",
                                            "AutoencoderKLHunyuanVideo")
    pixels = torch.rand(2, 3, *((9,) if video else ()), 32, 48) * 2 - 1
    with torch.no_grad():
        want = pipe.vae.encode(pixels).latent_dist
        image = pipe.vae.decode(want.mean).sample
        xdit.accelerate(pipe)
        got = pipe.vae.encode(pixels).latent_dist
        for a, b in ((want.mean, got.mean), (want.logvar, got.logvar),
                     (image, pipe.vae.decode(want.mean, return_dict=False)[0])):
            assert a.shape == b.shape and (a - b).abs().max() <= 2e-4 * a.abs().max()


def test_tiles(torch):
    pipe = load(torch, "alpha")
    latents = torch.randn(1, 4, 40, 56)
    pipe.vae.enable_tiling()
    with torch.no_grad():
        want = pipe.vae.decode(latents).sample
        xdit.accelerate(pipe)
        got = pipe.vae.decode(latents).sample
        pipe.vae.disable_tiling()
        whole = pipe.vae.decode(latents).sample
    assert (got - want).abs().max() <= 2e-4 * want.abs().max()
    assert (whole - want).abs().max() > 1e-2


# ---- what is refused -----------------------------------------------------------------------------

def refuses(words, kind=xdit.Unsupported):
    return pytest.raises(kind, match=words)


def test_other_classes(torch, flux):
    class Other(torch.nn.Module):
        pass
    own, flux.transformer = flux.transformer, Other()
    with refuses("transformer is a Other; .*FluxTransformer2DModel"):
        xdit.accelerate(flux)
    flux.transformer, flux.vae = own, Other()
    with refuses("vae is a Other; .*AutoencoderKL.*vae=False"):
        xdit.accelerate(flux)
    assert "_xdit" not in own.__dict__
    with refuses("object has no transformer"):
        xdit.accelerate(object())


def test_adapters(torch, flux):
    peft = pytest.importorskip("peft", reason="there is no peft")
    xdit.accelerate(flux)
    flux.transformer.add_adapter(peft.LoraConfig(r=2, target_modules=["to_q"]))
    with refuses("LoRA layers: pipe.fuse_lora"):
        run(torch, flux, "flux")
    xdit.restore(flux)
    with refuses("LoRA layers: pipe.fuse_lora"):
        xdit.accelerate(flux)
    base = run(torch, flux, "flux")
    for name, value in flux.transformer.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(value, std=0.3)
    flux.fuse_lora(components=["transformer"])          # the cure
    flux.unload_lora_weights()
    plain = run(torch, flux, "flux")
    assert apart(base, plain) > LEVELS
    xdit.accelerate(flux)
    assert apart(plain, run(torch, flux, "flux")) <= LEVELS


def test_attention_processors(torch, flux):
    class Mine:
        def __call__(self, *args, **kwargs):
            raise AssertionError
    flux.transformer.transformer_blocks[0].attn.set_processor(Mine())
    with refuses("transformer_blocks.0.attn.processor is a Mine"):
        xdit.accelerate(flux)


def test_hooks(torch, flux):
    flux.transformer.forward = flux.transformer.forward
    with refuses("hooks have replaced its forward"):
        xdit.accelerate(flux)


def test_threads_of_torch(torch, flux):
    threads = torch.get_num_threads()
    run(torch, xdit.accelerate(flux, threads=3 - min(threads, 2)), "flux")
    xdit.restore(flux)
    assert torch.get_num_threads() == threads


def test_twice(torch, flux):
    xdit.accelerate(flux)
    with refuses("already accelerated", xdit.InvalidRequest):
        xdit.accelerate(flux)
    assert xdit.restore(xdit.restore(flux)) is flux


def test_options(torch, flux):
    with refuses("int7", xdit.InvalidRequest):
        xdit.accelerate(flux, weights_dtype="int7")
    with refuses("threads is -1", xdit.InvalidRequest):
        xdit.accelerate(flux, threads=-1)
    assert "_xdit" not in flux.transformer.__dict__ and "forward" not in flux.transformer.__dict__


def test_broken_weights(torch, flux):
    state = flux.transformer
    del state.x_embedder.bias
    with refuses("x_embedder.bias .* is missing", xdit.FormatError):
        xdit.accelerate(flux)
    state.x_embedder.bias = torch.nn.Parameter(torch.zeros(3))
    with refuses("x_embedder.bias is 3, expected", xdit.FormatError):
        xdit.accelerate(flux)
    state.x_embedder.bias = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    with refuses("x_embedder.bias is a Tensor of torch.float64"):
        xdit.accelerate(flux)


def forward_of(torch, pipe):
    """Arguments of a forward of the tiny FLUX.1: 3 x 4 tokens and 5 of text."""
    c = pipe.transformer.config
    ids = torch.cartesian_prod(torch.zeros(1), torch.arange(3.), torch.arange(4.))
    return {"hidden_states": torch.randn(1, 12, c.in_channels), "img_ids": ids,
            "txt_ids": torch.zeros(5, 3), "timestep": torch.tensor([0.5]),
            "encoder_hidden_states": torch.randn(1, 5, c.joint_attention_dim),
            "pooled_projections": torch.randn(1, c.pooled_projection_dim),
            "guidance": torch.tensor([3.5]) if c.guidance_embeds else None}


@pytest.mark.parametrize("pairs,solos,repeat", [(1, 0, False), (0, 2, False), (2, 2, False),
                                                (2, 3, True)])
def test_residuals_of_control_networks(torch, flux, pairs, solos, repeat):
    """Each block gets the residual that diffusers adds after it."""
    c = flux.transformer.config
    width = c.num_attention_heads * c.attention_head_dim

    def samples(n):
        return [torch.randn(1, 12, width) for _ in range(n)] or None
    plain = forward_of(torch, flux)
    args = {**plain, "controlnet_block_samples": samples(pairs),
            "controlnet_single_block_samples": samples(solos), "controlnet_blocks_repeat": repeat}
    with torch.no_grad():
        want, without = flux.transformer(**args).sample, flux.transformer(**plain).sample
    xdit.accelerate(flux)
    got = flux.transformer(**args).sample
    assert (got - want).abs().max() <= 2e-4 * want.abs().max()
    assert (got - without).abs().max() > 2e-2 * want.abs().max()


def test_inputs(torch, flux):
    args = forward_of(torch, flux)
    with torch.no_grad():
        want = flux.transformer(**args).sample
    xdit.accelerate(flux)
    got = flux.transformer(**args)
    assert (got.sample - want).abs().max() <= 2e-4 * want.abs().max()
    assert torch.equal(flux.transformer(**args, return_dict=False)[0], got.sample)
    bad = [
        ({"hidden_states": args["hidden_states"][..., :-1]}, xdit.InvalidRequest, "latents"),
        ({"hidden_states": args["hidden_states"][:, :-1]}, xdit.InvalidRequest, "11 tokens"),
        ({"img_ids": None}, xdit.InvalidRequest, "img_ids"),
        ({"pooled_projections": None}, xdit.InvalidRequest, "pooled_projections"),
        ({"encoder_hidden_states": torch.zeros(2, 5, 40)}, xdit.InvalidRequest, "as many rows"),
        ({"encoder_hidden_states": torch.zeros(1, 5, 3)}, xdit.InvalidRequest, "text .* 5x3"),
        ({"pooled_projections": torch.zeros(1, 3)}, xdit.InvalidRequest, "pooled .* 1x3"),
        ({"img_ids": args["img_ids"] + 1}, xdit.Unsupported, "img_ids"),
        ({"img_ids": args["img_ids"] * 2}, xdit.Unsupported, "img_ids"),
        ({"txt_ids": args["txt_ids"] + 1}, xdit.Unsupported, "txt_ids"),
        ({"joint_attention_kwargs": {"scale": 2}}, xdit.Unsupported, "joint_attention_kwargs"),
        ({"controlnet_block_samples": [torch.zeros(2, 12, 24)]}, xdit.InvalidRequest,
         "controlnet_block_samples"),
        ({"controlnet_block_samples": [torch.zeros(1, 11, 24)]}, xdit.InvalidRequest,
         "residual 0 has 11 rows"),
        ({"controlnet_single_block_samples": [torch.zeros(1, 12, 3)]}, xdit.InvalidRequest,
         "residual has the shape 12x3"),
        ({"timestep": torch.tensor([float("nan")])}, xdit.InvalidRequest, "timestep is nan"),
        ({"hidden_states": args["hidden_states"].clone().requires_grad_()}, xdit.Unsupported,
         "torch.no_grad"),
        ({"hidden_states": args["hidden_states"].to("meta")}, xdit.InvalidRequest, "is on meta"),
    ]
    for change, kind, words in bad:
        with refuses(words, kind):
            flux.transformer(**{**args, **change})
    assert torch.equal(flux.transformer(**args).sample, got.sample)
