"""Step caches: requests for models of other suites. FBCache and TaylorSeer are those of diffusers;
it has no TeaCache, no DBCache and no kept keys of reference images, so their rules stand here.

Layout as in joint.py, video.py and wan.py; "cache" or "reference_interval" of golden.json is what
the program is asked for.
Caches decide by numbers: a case is written only if none of them is near its threshold.
"""
import json
import math

import numpy as np
from diffusers import FirstBlockCacheConfig, TaylorSeerCacheConfig
from diffusers.hooks import first_block_cache
from diffusers.models.transformers import transformer_flux
import torch

from ..common import quiet
from . import joint, video, wan

APART = 0.03                            # least distance of a change from the threshold
FLUX = dict(model="flux", prompts=["a large Red circle"], width=40, height=56, seed=7, guidance=3.5,
            max_sequence_length=13)
WAN = dict(model="wan", prompts=["a red circle"], negative_prompt="a green ring", width=64,
           height=48, frames=5, seed=7)
COG = dict(model="cog5b", prompts=["a cyan triangle"], width=40, height=56, frames=1, seed=11,
           guidance=1.0)
CASES = {
    "flux-cache": (joint, dict(FLUX, steps=8), "fbcache:0.45"),
    "flux-taylor": (joint, dict(FLUX, steps=9), "taylorseer:order=2,interval=3,warmup=2"),
    "flux-db": (joint, dict(FLUX, steps=10), "dbcache:Fn=2,Bn=1,threshold=0.5,warmup=2,order=1,"
                "max_continuous=2"),
    "wan-cache": (wan, dict(WAN, steps=7), "fbcache:0.31"),
    "wan-taylor": (wan, dict(WAN, steps=8, guidance=1.0), "taylorseer:interval=4,until=7"),
    "flux-tea": (joint, dict(FLUX, steps=9), "teacache:0.7,coefficients=3/-2/1/0.5/0.1"),
    "wan-tea": (wan, dict(WAN, steps=8), "teacache:0.45,coefficients=0/0/0/0.3/0.02"),
    "cog5b-cache": (video, dict(COG, steps=8), "fbcache:1.25"),
    "kontext-kept": (joint, dict(model="kontext", prompts=["make it a star"], width=48, height=64,
                                 negative_prompt="a ring", steps=5, seed=53, guidance=2.5,
                                 true_cfg=3.0, max_sequence_length=9, image=(44, 59),
                                 max_area=48 * 64), "references:2"),
}


def number(words, name, default):
    return int(words.get(name, default))


def config_of(text):
    """What diffusers is asked for."""
    name, _, rest = text.partition(":")
    if name == "fbcache":
        return FirstBlockCacheConfig(threshold=float(rest))
    words = dict(w.split("=") for w in rest.split(","))
    until = number(words, "until", -1)
    return TaylorSeerCacheConfig(
        cache_interval=number(words, "interval", 5), max_order=number(words, "order", 1),
        disable_cache_before_step=number(words, "warmup", 3),
        disable_cache_after_step=None if until < 0 else until,
        taylor_factors_dtype=torch.float32, use_lite_mode=True)


class Tea:
    """TeaCache (arXiv:2411.19108): blocks of `dit` are computed where changes of the first one's
    input, through a polynomial, have added up to the threshold, and in the first and last step.
    Passes take turns."""

    def __init__(self, dit, text, steps, passes, seen):
        first, _, rest = text.partition(":")[2].partition(",")
        self.limit, self.steps, self.passes, self.seen = float(first), steps, passes, seen
        self.poly = np.array([float(v) for v in rest.partition("=")[2].split("/")])
        self.calls, self.state = 0, [{"sum": 0.0} for _ in range(passes)]
        self.blocks = [b for name in ("transformer_blocks", "single_transformer_blocks", "blocks")
                       for b in getattr(dit, name, [])]
        self.wan = hasattr(dit, "blocks")
        if self.wan:
            self.watch_time(dit.condition_embedder)
        for i, block in enumerate(self.blocks):
            block.forward = self.around(i, block, block.forward)

    def watch_time(self, embedder):
        embed = embedder.forward

        def forward(*args, **kwargs):
            out = embed(*args, **kwargs)
            self.time = out[0]
            return out
        embedder.forward = forward

    def decides(self, now):
        """Are the blocks computed?"""
        s, step = self.state[self.calls % self.passes], self.calls // self.passes
        self.calls += 1
        before, s["before"], self.now = s.get("before"), now.clone(), s
        if step == 0 or step == self.steps - 1:
            s["sum"] = 0.0
            return True
        change = ((now - before).abs().mean() / before.abs().mean()).item()
        s["sum"] += np.polyval(self.poly, change)
        self.seen.append((s["sum"], self.limit))
        if s["sum"] < self.limit:
            return False
        s["sum"] = 0.0
        return True

    def around(self, i, block, forward):
        """The forward of block i."""
        def run(hidden_states, encoder_hidden_states=None, *args, **kwargs):
            h, text = hidden_states, encoder_hidden_states
            if i == 0:
                self.runs = self.decides(self.time if self.wan else
                                         block.norm1(h, emb=kwargs["temb"])[0])
                self.now["begin"] = h.clone()
            if self.runs:
                out = forward(h, text, *args, **kwargs)
                h, text = (out, text) if self.wan else (out[1], out[0])
            if i == len(self.blocks) - 1 and self.runs:
                self.now["added"] = h - self.now["begin"]
            elif i == len(self.blocks) - 1:
                h = self.now["begin"] + self.now["added"]
            return h if self.wan else (text, h)
        return run


class Db:
    """DBCache of cache-dit with its TaylorSeer, of a dual-stream model and one pass: the first Fn
    blocks decide, what those between add is extrapolated, the last Bn are computed."""

    def __init__(self, dit, text, seen):
        self.o = {k: float(v) for k, v in (w.split("=") for w in text.partition(":")[2].split(","))}
        self.blocks = [*dit.transformer_blocks, *dit.single_transformer_blocks]
        self.step, self.row, self.before, self.values, self.seen = -1, 0, None, [], seen
        for i, block in enumerate(self.blocks):
            block.forward = self.around(i, block.forward)

    def decides(self, added):
        """Are the blocks in the middle computed?"""
        o, change = self.o, 0.0
        may = self.step >= o["warmup"] and self.row < o["max_continuous"]
        if may:
            change = ((added - self.before).abs().mean() / self.before.abs().mean()).item()
            self.seen.append((change, o["threshold"]))
        if may and change < o["threshold"]:
            self.row += 1
            return False
        self.before, self.row = added, 0
        return True

    def keep(self, value):
        """Divided differences of (image, text), up to the order."""
        new = [value]
        for old in self.values[:int(self.o["order"])]:
            new.append(tuple((a - b) / (self.step - self.last) for a, b in zip(new[-1], old)))
        self.values, self.last = new, self.step

    def expanded(self, i):
        d = self.step - self.last
        return sum(v[i] * d ** k / math.factorial(k) for k, v in enumerate(self.values))

    def around(self, i, forward):
        first, end = int(self.o["Fn"]), len(self.blocks) - int(self.o["Bn"])

        def run(hidden_states, encoder_hidden_states=None, *args, **kwargs):
            h, text = hidden_states, encoder_hidden_states
            if i == 0:
                self.step, self.begin = self.step + 1, h.clone()
            if i < first or i >= end or self.runs:
                text, h = forward(h, text, *args, **kwargs)
            if i == first - 1:
                self.runs, self.middle = self.decides(h - self.begin), (h.clone(), text.clone())
            if i == end - 1 and self.runs:
                self.keep((h - self.middle[0], text - self.middle[1]))
            elif i == end - 1:
                h, text = self.middle[0] + self.expanded(0), self.middle[1] + self.expanded(1)
            return text, h
        return run


class References:
    """Keys and values of reference images that stay from step to step: a step that does not compute
    them reads the image's tokens alone, and its attention also those that are stored. Of `dit`, a
    transformer of FLUX.1 Kontext with two passes, whose reference has ids that begin with 1."""

    def __init__(self, dit, interval):
        self.interval, self.calls, self.kept = interval, 0, {}
        self.forward, self.attend = dit.forward, transformer_flux.dispatch_attention_fn
        dit.forward = self.pass_of

    def pass_of(self, hidden_states, img_ids, **kwargs):
        self.key, step = self.calls % 2, self.calls // 2
        self.calls, self.site, self.fresh = self.calls + 1, 0, step % self.interval == 0
        self.tokens = int((img_ids[:, 0] == 1).sum())
        if not self.fresh:
            hidden_states, img_ids = (v[..., :-self.tokens, :] for v in (hidden_states, img_ids))
        transformer_flux.dispatch_attention_fn = self.attention
        try:
            return self.forward(hidden_states=hidden_states, img_ids=img_ids, **kwargs)
        finally:
            transformer_flux.dispatch_attention_fn = self.attend

    def attention(self, query, key, value, **kwargs):
        at = self.key, self.site
        self.site += 1
        if self.fresh:
            self.kept[at] = key[:, -self.tokens:].clone(), value[:, -self.tokens:].clone()
        else:
            key, value = (torch.cat([a, b], dim=1) for a, b in zip((key, value), self.kept[at]))
        return self.attend(query, key, value, **kwargs)


def watched(seen):
    """The decision of diffusers, which also tells its number and its threshold."""
    def should_compute(hook, now):
        before = hook.state_manager.get_state().head_block_residual
        if before is None:
            return True
        change = ((now - before).abs().mean() / before.abs().mean()).item()
        seen.append((change, hook.threshold))
        return change > hook.threshold
    return should_compute


def run(name, out_dir):
    module, request, text = CASES[name]
    module.RUNS[name] = request
    make, decide, seen = module.make_parts, first_block_cache.FBCHeadBlockHook, []
    interval = int(text.rpartition(":")[2]) if text.startswith("references") else 1
    kept = decide._should_compute_remaining_blocks

    def make_parts(model):
        parts = make(model)
        if text.startswith("teacache"):
            passes = 1 + (module is wan and request.get("guidance", 5.0) > 1)
            Tea(parts["transformer"], text, request["steps"], passes, seen)
        elif text.startswith("dbcache"):
            Db(parts["transformer"], text, seen)
        elif text.startswith("references"):
            References(parts["transformer"], interval)
        else:
            parts["transformer"].enable_cache(config_of(text))
        return parts
    module.make_parts, decide._should_compute_remaining_blocks = make_parts, watched(seen)
    try:
        module.run(name, out_dir)
    finally:
        module.make_parts, decide._should_compute_remaining_blocks = make, kept
    near = [c for c, limit in seen if abs(c / limit - 1) < APART]
    print(f"{name}: changes {', '.join(f'{c:.4f}' for c, _ in seen)}")
    reused = sum(c <= limit for c, limit in seen)
    assert not near and (not seen or 0 < reused < len(seen)), (near, reused, len(seen))
    path = out_dir / name / "golden.json"
    asked = {"cache": text} if interval == 1 else {"reference_interval": interval}
    path.write_text(json.dumps(json.loads(path.read_text()) | asked, indent=2) + "\n")


def make(names, options):
    quiet()
    for name in names:
        with torch.no_grad():
            run(name, options.out)
