"""Methods with stale keys and values, by diffusers' PixArt, FLUX, FLUX.2 and Z-Image.

The requests are golden.json of alpha, flux, flux2-klein and zimage, which are made before; the
files golden.safetensors, flux.safetensors, flux2.safetensors and zimage.safetensors. Tensors, all
[C,h,w], the latents after the last step:

    pipefusion.M.W      M patches of tokens, W exact steps at the start; of FLUX with the text in
                        the first patch (its keys and values are of this step for all patches)
    every.M.W           FLUX: with the text in every patch
    displaced.R.W       R members, each with its tokens (DistriFusion), of FLUX also of the text

FLUX.2 is as FLUX. Z-Image is, too; the rows that fill its image up go with its text.

The network always runs on all tokens here; only the keys and values of its self-attentions are
replaced. What depends on nothing else than its own token (norms, MLPs, attention to the text) is
then right for the tokens in question and rubbish for the others, whose results are thrown away. So
nothing of how the engine cuts tensors is repeated.

PipeFusion (arXiv:2405.14430): within a step patch after patch is computed and stepped. A patch
attends to a memory of keys and values, one for each pass (prompt, negative prompt) and block, in
which its own rows are fresh. DistriFusion (arXiv:2402.19481): all members start from the latents
and the memory of the step before; own rows are fresh.
"""
import copy
import json

import numpy as np
import torch
import torch.nn.functional as F
from diffusers.models.embeddings import apply_rotary_emb
from diffusers.models.transformers import transformer_flux2
from diffusers.pipelines.flux2.pipeline_flux2_klein import compute_empirical_mu
from safetensors.torch import load_file, save_file

from . import flux2, joint, pixart, zimage


class StaleAttention:
    """Self-attention whose keys and values are fresh only in the rows `self.state.fresh`."""

    def __init__(self, state, block):
        self.state, self.block = state, block

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None,
                 **kwargs):
        s, h = self.state, attn.heads
        split = lambda t: t.view(t.shape[0], t.shape[1], h, -1).transpose(1, 2)
        q, k, v = (split(f(hidden_states)) for f in (attn.to_q, attn.to_k, attn.to_v))
        k, v = s.mix((s.name, self.block), k, v)
        out = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(hidden_states.shape)
        return attn.to_out[1](attn.to_out[0](out))


class StaleJoint:
    """Attention of text and image together, text first; keys and values are fresh in some rows."""

    def __init__(self, state, block):
        self.state, self.block = state, block

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None,
                 image_rotary_emb=None):
        s, text = self.state, encoder_hidden_states
        heads = lambda t: t.unflatten(-1, (-1, attn.head_dim))
        q, k, v = (heads(f(hidden_states)) for f in (attn.to_q, attn.to_k, attn.to_v))
        q, k = attn.norm_q(q), attn.norm_k(k)
        if text is not None:
            tq, tk, tv = (heads(f(text)) for f in (attn.add_q_proj, attn.add_k_proj,
                                                   attn.add_v_proj))
            tq, tk = attn.norm_added_q(tq), attn.norm_added_k(tk)
            q, k, v = (torch.cat(z, dim=1) for z in ((tq, q), (tk, k), (tv, v)))
        q, k = (apply_rotary_emb(z, image_rotary_emb, sequence_dim=1) for z in (q, k))
        q, k, v = (z.transpose(1, 2) for z in (q, k, v))
        out = F.scaled_dot_product_attention(q, *s.mix((s.name, self.block), k, v))
        out = out.transpose(1, 2).flatten(2, 3)
        if text is None:
            return out
        n = text.shape[1]
        return attn.to_out[1](attn.to_out[0](out[:, n:])), attn.to_add_out(out[:, :n])


class StaleSingle:
    """Attention of Z-Image: of the image ("noise"), of the text ("context"), or of both ("all")."""

    def __init__(self, state, kind, block):
        self.state, self.key = state, (kind, block)

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None,
                 freqs_cis=None):
        q, k, v = (f(hidden_states).unflatten(-1, (attn.heads, -1))
                   for f in (attn.to_q, attn.to_k, attn.to_v))
        turn = lambda t: torch.view_as_real(torch.view_as_complex(
            t.unflatten(-1, (-1, 2)).contiguous()) * freqs_cis[:, :, None]).flatten(3)
        q, k = turn(attn.norm_q(q)), turn(attn.norm_k(k))
        q, k, v = (z.transpose(1, 2) for z in (q, k, v))
        kv = self.state.mix((self.state.name, *self.key), k, v)
        out = F.scaled_dot_product_attention(q, *kv).transpose(1, 2).flatten(2, 3)
        return attn.to_out[0](out)


def mask_of(rows, key):
    """The mask for an attention; `rows` may have one for each pass and kind of attention."""
    return (rows[key[:2]] if isinstance(rows, dict) else rows)[None, None, :, None]


class State:
    """Whose keys and values are fresh (None: all); all as they were before, and are now."""

    def __init__(self):
        self.memory, self.written, self.fresh, self.name = {}, {}, None, None

    def mix(self, key, k, v):
        """Keys and values [1,H,n,D] of an attention: what is not fresh is as it was."""
        if self.fresh is not None:
            rows, old = mask_of(self.fresh, key), self.memory[key]
            k, v = torch.where(rows, k, old[0]), torch.where(rows, v, old[1])
        self.written[key] = (k, v)
        return k, v


def cut(n, parts):
    """Token ranges of nearly equal parts, as masks."""
    i = torch.arange(n)
    return [(i >= n * p // parts) & (i < n * (p + 1) // parts) for p in range(parts)]


class Painter:
    """One request: the pipeline, and the fields of alpha's golden.json that are read here."""

    def __init__(self, pipe, req):
        self.req, self.pipe, self.ntext = req, pipe, 0
        self.state = State()
        for i, b in enumerate(pipe.transformer.transformer_blocks):
            b.attn1.set_processor(StaleAttention(self.state, i))
        e, em, n, nm = pipe.encode_prompt(req["prompts"][0], negative_prompt=req["negative_prompt"],
                                          clean_caption=False, device="cpu")
        self.text = {"prompt": (e, em), "negative": (n, nm)}
        self.patch = pipe.transformer.config.patch_size
        c = pipe.transformer.config.in_channels
        self.shape = (1, c, req["height"] // pipe.vae_scale_factor,
                      req["width"] // pipe.vae_scale_factor)
        self.tokens = self.shape[2] * self.shape[3] // self.patch ** 2

    def noise(self):
        g = torch.Generator("cpu").manual_seed(self.req["seed"])
        return torch.randn(self.shape, generator=g)

    def cells(self, mask):
        """Tokens -> cells of the latents."""
        p, (_, _, h, w) = self.patch, self.shape
        return mask.view(h // p, w // p).repeat_interleave(p, 0).repeat_interleave(p, 1)[None, None]

    def predict(self, lat, t, fresh):
        """The guided noise; `fresh`: tokens whose keys and values count, None: all."""
        out = {}
        self.state.fresh = fresh
        for name, (emb, mask) in self.text.items():
            self.state.name = name
            out[name] = self.pipe.transformer(
                lat, encoder_hidden_states=emb, encoder_attention_mask=mask, timestep=t.expand(1),
                added_cond_kwargs={"resolution": None, "aspect_ratio": None}).sample.chunk(2, 1)[0]
        return out["negative"] + self.req["guidance_scale"] * (out["prompt"] - out["negative"])

    def remember(self, rows=None):
        """Makes what the last prediction wrote (of some rows) the memory."""
        for key, kv in self.state.written.items():
            if rows is not None:
                pick = mask_of(rows, key)
                kv = tuple(torch.where(pick, a, b) for a, b in zip(kv, self.state.memory[key]))
            self.state.memory[key] = kv

    def begin(self):
        s = copy.deepcopy(self.pipe.scheduler)
        s.set_timesteps(self.req["num_inference_steps"])
        return s, self.noise() * s.init_noise_sigma

    def rows(self, mask, text):
        """Rows of an attention: those of image tokens, and of text tokens where it flows."""
        return mask

    def text_parts(self, members):
        return cut(self.ntext, members)

    def pipefusion(self, patches, warmup, every=False):
        plain, lat = self.begin()
        masks = cut(self.tokens, patches)
        some = torch.ones(self.ntext, dtype=torch.bool)
        own = [copy.deepcopy(plain) for _ in masks]     # a sampler's history is that of its patch
        for i, t in enumerate(plain.timesteps):
            if i < warmup:
                pred = self.predict(lat, t, None)
                self.remember()
                lat = [s.step(pred, t, lat).prev_sample for s in own][0]
                continue
            for p, (s, m) in enumerate(zip(own, masks)):
                fresh = self.rows(m, some if every or p == 0 else ~some)
                pred = self.predict(lat, t, fresh)
                self.remember(fresh)
                lat = torch.where(self.cells(m), s.step(pred, t, lat).prev_sample, lat)
        return lat[0]

    def displaced(self, members, warmup):
        sched, lat = self.begin()
        masks, texts = cut(self.tokens, members), self.text_parts(members)
        for i, t in enumerate(sched.timesteps):
            if i < warmup:
                pred = self.predict(lat, t, None)
                self.remember()
            else:
                pred, now = torch.zeros_like(lat), {}
                for m, text in zip(masks, texts):
                    fresh = self.rows(m, text)
                    pred = torch.where(self.cells(m), self.predict(lat, t, fresh), pred)
                    for key, kv in self.state.written.items():
                        pick, was = mask_of(fresh, key), now.get(key, kv)
                        now[key] = tuple(torch.where(pick, a, b) for a, b in zip(kv, was))
                self.state.memory = now
            lat = sched.step(pred, t, lat).prev_sample
        return lat[0]


class FluxPainter(Painter):
    """One pass a step; the text's rows come first."""

    def __init__(self, pipe, req):
        self.req, self.pipe, self.state, self.patch = req, pipe, State(), 2
        dit = pipe.transformer
        for i, b in enumerate([*dit.transformer_blocks, *dit.single_transformer_blocks]):
            b.attn.set_processor(StaleJoint(self.state, i))
        self.emb, self.pooled, self.text_ids = pipe.encode_prompt(
            req["prompts"][0], None, max_sequence_length=req["max_sequence_length"])
        self.ntext, c, f = self.emb.shape[1], dit.config.in_channels // 4, pipe.vae_scale_factor
        self.shape = (1, c, req["height"] // f, req["width"] // f)
        self.tokens = self.shape[2] * self.shape[3] // 4

    def rows(self, mask, text):
        return torch.cat([text, mask])

    def predict(self, lat, t, fresh):
        self.state.fresh, self.state.name = fresh, "prompt"
        _, c, h, w = self.shape
        ids = self.pipe._prepare_latent_image_ids(1, h // 2, w // 2, "cpu", torch.float32)
        out = self.pipe.transformer(
            self.pipe._pack_latents(lat, 1, c, h, w), timestep=t.expand(1) / 1000,
            guidance=torch.full([1], self.req["guidance_scale"]), pooled_projections=self.pooled,
            encoder_hidden_states=self.emb, txt_ids=self.text_ids, img_ids=ids).sample
        return self.pipe._unpack_latents(out, self.req["height"], self.req["width"],
                                         self.pipe.vae_scale_factor)

    def begin(self):
        s, n = copy.deepcopy(self.pipe.scheduler), self.req["num_inference_steps"]
        c = s.config
        mu = c.base_shift + (self.tokens - c.base_image_seq_len) * (
            (c.max_shift - c.base_shift) / (c.max_image_seq_len - c.base_image_seq_len))
        s.set_timesteps(sigmas=np.linspace(1.0, 1 / n, n), mu=mu)
        return s, self.noise()


class Flux2Painter(FluxPainter):
    """As FLUX; attentions are numbered by their order in a pass."""

    def __init__(self, pipe, req):
        self.req, self.pipe, self.state, self.patch, self.site = req, pipe, State(), 1, 0
        transformer_flux2.dispatch_attention_fn = self.attend
        self.emb, self.text_ids = pipe.encode_prompt(
            req["prompts"][0], max_sequence_length=req["max_sequence_length"])
        self.ntext, f = self.emb.shape[1], 2 * pipe.vae_scale_factor
        self.shape = (1, pipe.transformer.config.in_channels, req["height"] // f, req["width"] // f)
        self.tokens = self.shape[2] * self.shape[3]

    def attend(self, q, k, v, **kwargs):
        self.site += 1
        q, k, v = (z.transpose(1, 2) for z in (q, k, v))
        kv = self.state.mix((self.state.name, self.site), k, v)
        return F.scaled_dot_product_attention(q, *kv).transpose(1, 2)

    def predict(self, lat, t, fresh):
        self.state.fresh, self.state.name, self.site = fresh, "prompt", 0
        out = self.pipe.transformer(
            self.pipe._pack_latents(lat), timestep=t.expand(1) / 1000, guidance=None,
            encoder_hidden_states=self.emb, txt_ids=self.text_ids,
            img_ids=self.pipe._prepare_latent_ids(lat)).sample
        return out.permute(0, 2, 1).unflatten(2, self.shape[2:])

    def begin(self):
        s, n = copy.deepcopy(self.pipe.scheduler), self.req["num_inference_steps"]
        s.set_timesteps(sigmas=np.linspace(1.0, 1 / n, n), mu=compute_empirical_mu(self.tokens, n))
        return s, self.noise()


class ZImagePainter(Painter):
    """Two passes with texts of two lengths. Rows: image, what fills it up, text."""

    def __init__(self, pipe, req):
        self.req, self.pipe, self.state, self.patch = req, pipe, State(), 2
        dit = pipe.transformer
        for kind, blocks in (("noise", dit.noise_refiner), ("context", dit.context_refiner),
                             ("all", dit.layers)):
            for i, b in enumerate(blocks):
                b.attention.set_processor(StaleSingle(self.state, kind, i))
        e, n = pipe.encode_prompt(req["prompts"][0], negative_prompt=req["negative_prompt"])
        self.text, f = {"prompt": e[0], "negative": n[0]}, pipe.vae_scale_factor
        self.shape = (1, dit.config.in_channels, req["height"] // f, req["width"] // f)
        self.tokens, self.ntext = self.shape[2] * self.shape[3] // 4, 1

    def text_parts(self, members):
        return [(i, members) for i in range(members)]

    def rows(self, mask, text):
        """`text`: all of it or nothing, or (i, n): the i-th of n parts."""
        some = (lambda n: cut(n, text[1])[text[0]]) if isinstance(text, tuple) else (
            lambda n: text.expand(n))
        out, up = {}, lambda n: n + -n % zimage.MULTIPLE
        for name, emb in self.text.items():
            image = torch.cat([mask, some(up(self.tokens) - self.tokens)])
            own = some(up(len(emb)))
            out |= {(name, "noise"): image, (name, "context"): own,
                    (name, "all"): torch.cat([image, own])}
        return out

    def predict(self, lat, t, fresh):
        out, g = {}, self.req["guidance_scale"]
        self.state.fresh = fresh
        for name, emb in self.text.items():
            self.state.name = name
            out[name] = self.pipe.transformer([lat[0][:, None]], (1000 - t.expand(1)) / 1000, [emb],
                                              return_dict=False)[0][0].movedim(1, 0)
        return -(out["prompt"] + g * (out["prompt"] - out["negative"]))

    def begin(self):
        s, n = copy.deepcopy(self.pipe.scheduler), self.req["num_inference_steps"]
        s.set_timesteps(sigmas=torch.linspace(1.0, 1 / n, n).tolist())
        return s, self.noise()


def write(out_dir, name, painter, file, ways):
    steps, out = painter.req["num_inference_steps"], {}
    exact = load_file(out_dir / name / "golden.safetensors")[f"latents.0.{steps - 1}"]
    apart = lambda z: ((z - exact).abs().max() / exact.abs().max()).item()
    for z in (painter.pipefusion(3, steps), painter.displaced(2, steps), painter.pipefusion(1, 1)):
        assert apart(z) < 1e-5, f"without stale rows the pipeline's latents are {apart(z):.2g} away"
    for w in (1, 2):
        for m in (3, 4):
            for way in ways:
                out[f"{way}.{m}.{w}"] = painter.pipefusion(m, w, way == "every")
        for r in (2, 3):
            out[f"displaced.{r}.{w}"] = painter.displaced(r, w)
    for k, z in out.items():
        print(f"{name} {k}: {apart(z):.4f} of the largest value away from exact")
    d = out_dir / "stale"
    d.mkdir(exist_ok=True)
    save_file({k: z.contiguous() for k, z in out.items()}, d / file)
    (d / file).chmod(0o644)


def make(names, options):
    torch.set_num_threads(1)
    out = options.out
    request = lambda name: json.loads((out / name / "golden.json").read_text())
    with torch.no_grad():
        alpha = Painter(pixart.load("alpha", out), request("alpha"))
        write(out, "alpha", alpha, "golden.safetensors", ["pipefusion"])
        flux = FluxPainter(joint.load("flux", out, False, False), request("flux"))
        write(out, "flux", flux, "flux.safetensors", ["pipefusion", "every"])
        two = Flux2Painter(flux2.load("flux2-klein", out), request("flux2-klein"))
        write(out, "flux2-klein", two, "flux2.safetensors", ["pipefusion", "every"])
        single = ZImagePainter(zimage.load("zimage", out, False), request("zimage"))
        write(out, "zimage", single, "zimage.safetensors", ["pipefusion", "every"])
