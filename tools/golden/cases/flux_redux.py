"""FLUX.1 with a prior (Redux): whole requests, laid out as in joint.py.

redux.png and redux_2.png are the images of which the prior makes rows; "prompt_embeds" are the
weighted sums of all of them. Pipeline and prior share the model's folder. Without a prompt the text
is zeros, whose sizes diffusers has as numbers of its own, so that `Prior` makes them here.
"""
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, FluxPriorReduxPipeline
from diffusers.pipelines.flux.modeling_flux import ReduxImageEncoder
from transformers import SiglipImageProcessorPil, SiglipVisionConfig, SiglipVisionModel

from . import joint
from ..common import keep_images, make_each, make_image, save_run, say_images
from ..fill import configure, fill

NAME = "flux-redux"
# an image of 20 x 20 pixels, whose patches leave two columns and rows: 9 rows
SIGLIP = dict(hidden_size=16, intermediate_size=21, num_attention_heads=2, num_hidden_layers=2,
              image_size=20, patch_size=6)
PIXELS = dict(size={"height": 20, "width": 20})
REDUX = dict(redux_dim=16, txt_in_features=joint.FLUX["joint_attention_dim"])
joint.MODELS[NAME] = dict(seed=71, kind="flux", clip=[joint.CLIP_L],
                          dit=dict(guidance_embeds=True, num_attention_heads=3, num_layers=2,
                                   num_single_layers=3, **joint.FLUX),
                          scheduler=FlowMatchEulerDiscreteScheduler(**joint.DYNAMIC),
                          weights="bf16")
RUNS = {
    "flux-redux": dict(prompts=[""], width=56, height=40, steps=4, seed=92, guidance=2.5,
                       redux=[(61, 50)]),
    "flux-redux-two": dict(model=NAME, prompts=["two stars"], negative_prompt="a ring",
                           more=dict(prompt_2="a red circle"), width=40, height=48, steps=3,
                           seed=93, guidance=3.0, true_cfg=2.5, redux=[(30, 44), (20, 20)],
                           scale=[0.7, 0.45], pooled=[1.2, -0.5]),
}


class Prior(FluxPriorReduxPipeline):
    def encode_prompt(self, prompt, max_sequence_length, **kw):
        e, p, ids = super().encode_prompt(prompt, max_sequence_length=self.rows, **kw)
        if not prompt[0]:
            e, p = torch.zeros_like(e), torch.zeros_like(p)
        return e, p, ids


def make_nets():
    return {"image_encoder": fill(SiglipVisionModel(SiglipVisionConfig(**SIGLIP)), "bf16"),
            "image_embedder": fill(ReduxImageEncoder(**REDUX), "bf16")}


def make_model(name, out):
    joint.make_model(name, out)
    for folder, net in make_nets().items():
        configure(net, out / folder)
    SiglipImageProcessorPil(**PIXELS).save_pretrained(out / "feature_extractor")
    joint.tidy(out, {})


def run(name, out_dir):
    r = dict(model=name, images=1, true_cfg=0.0, max_sequence_length=9, more={},
             negative_prompt="") | RUNS[name]
    d, count = out_dir / name, len(r["prompts"])
    d.mkdir(parents=True, exist_ok=True)
    pipe = joint.load(r["model"], out_dir, False, False)
    texts = {k: getattr(pipe, k) for k in ("text_encoder", "text_encoder_2", "tokenizer",
                                           "tokenizer_2")}
    prior = Prior(feature_extractor=SiglipImageProcessorPil(**PIXELS), **texts, **make_nets())
    prior.rows = r["max_sequence_length"]
    images = [make_image(size, r["seed"] + 4000 + i) for i, size in enumerate(r["redux"])]
    for i, image in enumerate(images):
        image.save(d / ("redux_2.png" if i else "redux.png"))
    n, out, trail = len(images), {}, []
    if r["prompts"][0]:
        joint.record_text(pipe, r, out)
    e, p = prior(images, r["prompts"][0], prompt_2=n * [r["more"].get("prompt_2",
                                                                     r["prompts"][0])],
                 prompt_embeds_scale=r.get("scale", 1.0),
                 pooled_prompt_embeds_scale=r.get("pooled", 1.0), return_dict=False)
    out |= {"prompt_embeds": e[0].clone(), "pooled_prompt_embeds": p.clone()}

    def keep(pipe, step, t, kw):
        trail.append((float(t), pipe._unpack_latents(kw["latents"], r["height"], r["width"],
                                                     pipe.vae_scale_factor).clone()))
        return {}
    guided = dict(negative_prompt=r["negative_prompt"], true_cfg_scale=r["true_cfg"])
    made = pipe(prompt_embeds=e, pooled_prompt_embeds=p, num_inference_steps=r["steps"],
                guidance_scale=r["guidance"], height=r["height"], width=r["width"],
                generator=torch.Generator("cpu").manual_seed(r["seed"]), output_type="pt",
                max_sequence_length=r["max_sequence_length"], callback_on_step_end=keep,
                **(guided if r["true_cfg"] else {})).images
    keep_images(out, trail, made, r, count)
    notes = {"redux": ".", "redux_images": n}
    for key, of in (("prompt_embeds_scale", "scale"), ("pooled_prompt_embeds_scale", "pooled")):
        if of in r:
            notes[key] = ",".join(f"{v:g}" for v in r[of])
    save_run(d, name, r["model"], {
        "weights": "bf16", "prompts": r["prompts"], "negative_prompt": r["negative_prompt"],
        "width": r["width"], "height": r["height"], "model_width": r["width"],
        "model_height": r["height"], "num_inference_steps": r["steps"],
        "guidance_scale": r["guidance"], "true_cfg_scale": r["true_cfg"], "seed": r["seed"],
        "num_images_per_prompt": 1, "images": count,
        "max_sequence_length": r["max_sequence_length"], "scheduler": None, "tiling": False,
        "resolution_binning": False, "strength": 0.0} | r["more"] | notes, out)
    say_images(name, r, out, trail, count)


def make(names, options):
    make_each(names, options.out, {NAME: None}, make_model, run)
