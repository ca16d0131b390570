"""DiTFastAttn (arXiv:2406.08552): outputs of attention that stand for those of later steps and of
the other pass, and windows with what all keys added to them before. diffusers has none of it, so
the rules stand here.

Layout as in pixart.py and joint.py; "fast_attn" and "attention_window" of golden.json are what the
program is asked for. ways.json is a table in the form of xDiT's files.

What is kept here is what an attention hands to its block, as in xDiT: behind the projections, for
both halves of the batch. The program keeps what comes before the projections, pass for pass.
Windows are masks. A case is written only if its latents tell a window of another size, and a table
without one of its ways, from its own.
"""
import contextlib
import io
import json
import pathlib
import tempfile

import torch
import torch.nn.functional as F
from safetensors import safe_open

from ..common import quiet
from . import joint, pixart

FAR = 1e-3                              # least change of the last latents: 5 tolerances of f32
XDIT = {"full": "FULL_ATTN", "full+cfg": "FULL_ATTN_CFG_SHARE", "window": "RESIDUAL_WINDOW_ATTN",
        "window+cfg": "RESIDUAL_WINDOW_ATTN_CFG_SHARE", "share": "OUTPUT_SHARE"}
CASES = {
    # Windows of both passes in the place of each one's after all keys of each, and the reverse. The
    # passes of PixArt's first block are alike: no text has been seen.
    "alpha-ways": (pixart, dict(
        model="alpha", prompts=["a red star above a green ring"], negative_prompt="a square",
        width=112, height=80, steps=8, seed=91, guidance=7.5), "6", (
            "full window share window+cfg full+cfg window share full",
            "full share full+cfg window+cfg window share share window",
            "full full+cfg share full window+cfg window full window+cfg")),
    "alpha-share": (pixart, dict(
        model="alpha", prompts=["a cyan triangle"], negative_prompt="a ring", width=48, height=80,
        steps=5, seed=92, guidance=3.0, scheduler="euler"), None, "share,full+cfg,share"),
    "sd3-ways": (joint, dict(
        model="sd3", prompts=["a blue square"], negative_prompt="a star", width=56, height=40,
        steps=6, seed=93, guidance=4.0, max_sequence_length=7), "0,3,3", (
            "full window share full+cfg window+cfg window",
            "full full+cfg window share window+cfg full",
            "full window+cfg window full share window")),
    # Two attentions in some of its blocks.
    "sd35-ways": (joint, dict(
        model="sd35", prompts=["a white star"], negative_prompt="a ring", width=72, height=40,
        steps=6, seed=94, guidance=3.0, max_sequence_length=8), "7",
        "window,share,full+cfg,window+cfg"),
}


# ---- windows -------------------------------------------------------------------------------------

def seen_along(n, size, most):
    """[n,n]: which tokens of an axis see which. All of a tile see the box around it."""
    if not 0 < size < n:
        return torch.ones(n, n)
    tiles = -(-n // min(most, size))
    seen = torch.zeros(n, n)
    for i in range(tiles):
        tile = n * i // tiles, n * (i + 1) // tiles
        start = min(max((sum(tile) - size) // 2, 0), n - size)
        seen[slice(*tile), start:start + size] = 1
    return seen


def seen_in(window, grid):
    """[N,N] of the tokens of an image; None: there are no windows."""
    if not window:
        return None
    sizes = [int(v) for v in window.split(",")]
    if len(sizes) == 1:
        place = torch.arange(grid[0] * grid[1])
        return (place[:, None] - place[None, :]).abs() <= sizes[0]
    return torch.kron(seen_along(grid[0], sizes[1], 10), seen_along(grid[1], sizes[2], 16)) > 0


def with_text(seen, n):
    """Of n tokens with those of the image in front: the others see all and are seen by all."""
    mask = torch.ones(n, n, dtype=torch.bool)
    mask[:len(seen), :len(seen)] = seen
    return mask


# ---- attention -----------------------------------------------------------------------------------

def prompts(t):
    """The second half of a batch, which has the prompts."""
    return t[len(t) // 2:]


def projected(attn, image, text):
    """Queries, keys and values [B,H,n,D], the image's in front."""
    def heads(states, names, norms):
        q, k, v = (getattr(attn, name)(states).unflatten(-1, (attn.heads, -1)).transpose(1, 2)
                   for name in names)
        norm_q, norm_k = (getattr(attn, name, None) for name in norms)
        return norm_q(q) if norm_q else q, norm_k(k) if norm_k else k, v
    own = heads(image, ("to_q", "to_k", "to_v"), ("norm_q", "norm_k"))
    if text is None:
        return own
    added = heads(text, ("add_q_proj", "add_k_proj", "add_v_proj"),
                  ("norm_added_q", "norm_added_k"))
    return tuple(torch.cat(pair, dim=2) for pair in zip(own, added))


class FastAttention:
    """A processor of self-attention and of joint attention, with a way for each step."""

    def __init__(self, ways, seen):
        self.ways, self.seen, self.step, self.rest, self.kept = ways, seen, 0, None, None

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, **kwargs):
        way, self.step = self.ways[self.step], self.step + 1
        if way != "share":
            both = way.endswith("+cfg")
            given = (hidden_states, encoder_hidden_states)
            outs = self.computed(attn, way, *(prompts(t) if both and t is not None else t
                                              for t in given))
            self.kept = tuple(torch.cat([t, t]) if both else t for t in outs)
        return self.kept if len(self.kept) > 1 else self.kept[0]

    def computed(self, attn, way, image, text):
        """What the attention hands on: (image,), or (image, text)."""
        qkv = projected(attn, image, text)
        if way.startswith("window"):
            out = self.windowed(*qkv) + (prompts(self.rest) if way == "window+cfg" else self.rest)
        else:
            out = F.scaled_dot_product_attention(*qkv)
            if self.seen is not None:
                rest = out - self.windowed(*qkv)
                self.rest = torch.cat([rest, rest]) if way == "full+cfg" else rest
        out = out.transpose(1, 2).flatten(2)
        n = image.shape[1]
        own = attn.to_out[1](attn.to_out[0](out[:, :n]))
        if text is None:
            return (own,)
        return own, out[:, n:] if attn.context_pre_only else attn.to_add_out(out[:, n:])

    def windowed(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v,
                                              attn_mask=with_text(self.seen, q.shape[2]))


# ---- requests ------------------------------------------------------------------------------------

def table_of(asked, blocks, steps):
    """Ways of each block and step. Those of a list are taken in turn behind the first step."""
    if not isinstance(asked, str):
        return [row.split() for row in asked]
    words = asked.split(",")
    return [["full"] + [words[i % len(words)] for i in range(steps - 1)]] * blocks


def put_into(pipe, r, asked, window):
    """Gives the pipeline's blocks their processors."""
    dit, cell = pipe.transformer, pipe.vae_scale_factor * pipe.transformer.config.patch_size
    seen = seen_in(window, (r["height"] // cell, r["width"] // cell))
    table = table_of(asked, len(dit.transformer_blocks), r["steps"])
    assert len(table) == len(dit.transformer_blocks)
    for ways, block in zip(table, dit.transformer_blocks):
        assert len(ways) == r["steps"]
        own = [block.attn1] if hasattr(block, "attn1") else [block.attn]
        if getattr(block, "use_dual_attention", False):
            own.append(block.attn2)
        for attn in own:
            attn.set_processor(FastAttention(ways, seen))


def generate(name, out_dir, asked, window, more):
    """Writes the request with these ways into out_dir."""
    module, r, *_ = CASES[name]
    module.RUNS[name] = r
    if module is joint:
        joint.run(name, out_dir, lambda pipe: put_into(pipe, r, asked, window), more)
        return
    load = pixart.load

    def load_fast(model, out):
        pipe = load(model, out)
        put_into(pipe, r, asked, window)
        return pipe
    pixart.load = load_fast
    try:
        out = pixart.run(name, out_dir, write=False)
    finally:
        pixart.load = load
    kept = {k: v for k, v in out.items() if not k.startswith(("dit.", "text.", "image."))}
    pixart.save(name, out_dir, pixart.DEFAULTS | r, kept, 1, r["height"], r["width"])
    path = out_dir / name / "golden.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | more, indent=2) + "\n")


# ---- what a case tells ---------------------------------------------------------------------------

def last_latents(folder, steps):
    with safe_open(folder / "golden.safetensors", "pt") as f:
        return f.get_tensor(f"latents.0.{steps - 1}")


def others(name, table):
    """What a mistaken program might compute: {what: (table, window)}."""
    window = CASES[name][2]
    swap = lambda f: [" ".join(f(w) for w in ways) for ways in table]
    found = {"full in the place of share": swap(lambda w: "full" if w == "share" else w),
             "full in the place of window": swap(lambda w: w.replace("window", "full")),
             "each pass its own": swap(lambda w: w.replace("+cfg", ""))}
    found = {what: (t, window) for what, t in found.items() if t != swap(str)}
    if window:
        sizes = [int(v) + (int(v) > 0) for v in window.split(",")]
        found["windows one larger"] = swap(str), ",".join(map(str, sizes))
    return found


def check_others(name, out_dir, table):
    r = CASES[name][1]
    want = last_latents(out_dir / name, r["steps"])
    for what, (asked, window) in others(name, table).items():
        with tempfile.TemporaryDirectory() as tmp:
            tmp = pathlib.Path(tmp)
            (tmp / r["model"]).symlink_to((out_dir / r["model"]).resolve())
            with contextlib.redirect_stdout(io.StringIO()):
                generate(name, tmp, asked, window, {})
            gap = (last_latents(tmp / name, r["steps"]) - want).abs().max() / want.abs().max()
        print(f"{name}: {what}: {gap:.1e} from it")
        assert gap > FAR, (name, what, gap)


def run(name, out_dir):
    _, r, window, asked = CASES[name]
    blocks = pixart.MODELS if r["model"] in pixart.MODELS else joint.MODELS
    table = table_of(asked, blocks[r["model"]]["dit"]["num_layers"], r["steps"])
    listed = isinstance(asked, str)
    generate(name, out_dir, asked, window,
             {"fast_attn": asked if listed else "ways.json"} |
             ({"attention_window": window} if window else {}))
    if not listed:
        doc = {f"block{b}": {f"step{i}": XDIT[way] for i, way in enumerate(ways)}
               for b, ways in enumerate(table)}
        path = out_dir / name / "ways.json"
        path.write_text(json.dumps(doc, indent=2) + "\n")
        path.chmod(0o644)
    check_others(name, out_dir, table)


def make(names, options):
    quiet()
    for name in names:
        with torch.no_grad():
            run(name, options.out)
