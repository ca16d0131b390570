#!/usr/bin/env python3
"""launches.py GOLDEN FULL MODEL - the launches of test_parity, for tests/parity/meson.build.

Chosen pairwise: every pair of a kind of token flow, a number of ranks, a type and a group of
features that goes together is in some launch, and so are every model and every feature of a kind.
The first FIRST launches, on 2, 3, 4 and 6 ranks, are those of `make check`.

GOLDEN: the folder of golden models; FULL: the same with the weights that are not kept; MODEL: the
PixArt of tests/parity. Prints a line a launch: name|`first` or `more`|program|ranks|environment|
arguments with tabs between them.
"""
import collections
import math
import sys

FIRST, RARE = 24, 0.3
FIRST_RANKS, RANKS = (2, 3, 4, 6), (2, 3, 4, 5, 6, 7, 8)
PLANS = {2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 3, 8: 9}      # one plan of so many is run

# A type: its arguments and its environment.
TYPES = {"f32": (["f32"], "mpi"), "bf16": (["bf16"], "bf16"), "avx2": (["f32", "near"], "avx2"),
         "int8": (["f32", "kept=int8"], "mpi"), "fp8": (["f32", "kept=fp8"], "mpi")}
FLOATS = ("f32", "bf16", "avx2")

# A feature: its group, its arguments ({m}: the model's name), its types, and a program or
# environment of its own. Thresholds of caches lie between the changes of one rank. thin: so many
# times fewer plans.
FEATURES = {
    "plain": (None, [], tuple(TYPES)),
    # of a model whose steps make tenths of single int8 inputs that differ by one
    "steep": (None, [], FLOATS + ("fp8",)),
    "short": ("text", ["text=1"], FLOATS + ("int8",)),
    "long": ("text", ["text=511"], FLOATS),
    "sent": ("messages", [], ("f32", "bf16"), "test_sent"),
    "far": ("messages", [], ("f32",), "test_parity_far"),
    "groups": ("messages", ["size=176x128", "thin=4"], ("f32",), "test_sent"),
    "attention": ("attention", ["attention=int8"], ("f32", "bf16"), "test_parity", "c"),
    "window": ("attention", ["window=0,3,3"], ("f32", "bf16")),
    "scores": ("attention", ["attention=int8", "window=0,3,3"], ("bf16",)),
    "share": ("attention", ["fast=share,full", "steps=5"], ("f32",)),
    "fast": ("attention", ["fast=window,full+cfg,share", "window=0,3,3", "steps=5"], ("f32",)),
    "unipc": ("sampler", ["scheduler=unipc"], ("f32",)),
    "heun": ("sampler", ["scheduler=heun"], ("f32",)),
    "lcm": ("sampler", ["scheduler=lcm"], ("f32",)),
    "ancestral": ("sampler", ["scheduler=euler-ancestral"], ("f32",)),
    "flow_heun": ("sampler", ["scheduler=flow-heun"], ("f32",)),
    "flow_lcm": ("sampler", ["scheduler=flow-lcm"], ("f32",)),
    "fbcache": ("cache", ["steps=6", "cache=fbcache:0.7"], ("f32",)),
    "dbcache": ("cache", ["steps=6", "cache=dbcache:Fn=1,Bn=1,threshold=0.7,warmup=1,order=1"],
                ("f32",)),
    "teacache": ("cache", ["steps=6", "cache=teacache:0.3,coefficients=0/0/0/1/0"], ("f32",)),
    "taylorseer": ("cache", ["steps=6", "cache=taylorseer:order=2,interval=3,warmup=2"], ("f32",)),
    "rescale": ("sampler", ["rescale=0.7"], ("f32",)),
    "layers": ("sampler", ["skipped=1", "steps=5"], ("f32", "bf16")),
    "perturbed": ("sampler", ["perturbed=1"], FLOATS + ("int8",)),
    "cut": ("sampler", ["length=0.9", "cut=0.4"], ("f32",)),
    "free": ("sampler", ["length=0"], ("f32",)),
    "early": ("sampler", ["ratio=0.5"], ("f32", "bf16")),
    "begin": ("image", ["image=GOLDEN/{m}-image/image.png"], ("f32",)),
    "mask": ("image", ["image=GOLDEN/{m}-mask/image.png", "mask=GOLDEN/{m}-mask/mask.png"],
             ("f32", "bf16")),
    "image": ("image", ["image=GOLDEN/{m}/image.png"], ("f32", "bf16", "int8")),
    "first": ("image", ["image=GOLDEN/{m}-i2v/image.png"], ("f32", "bf16", "int8")),
    "still": ("image", ["image=GOLDEN/sana-video-still/image.png"], ("f32", "bf16")),
    "fill": ("image", ["noise", "image=GOLDEN/{m}/image.png", "mask=GOLDEN/{m}/mask.png"],
             ("f32", "bf16")),
    "control": ("image", ["control=GOLDEN/{m}/control.png"], ("f32", "bf16", "int8")),
    "beside": ("image", ["control=GOLDEN/{m}/control.png", "influence=0.8"],
               ("f32", "bf16", "int8")),
    # of a model like those of "steep"
    "steered": ("image", ["control=GOLDEN/{m}/control.png", "influence=0.8"], ("f32", "bf16")),
    "between": ("image", ["control=GOLDEN/{m}/control.png", "steps=6", "between=0.4,0.9",
                          "influence=0.7,1.2", "side=GOLDEN/{m}/controlnet_2"], ("f32",)),
    "kinds": ("image", ["control=GOLDEN/{m}/control.png", "steps=6", "between=0.4,0.9",
                        "influence=0.7,1.2", "side=GOLDEN/{m}/controlnet_2", "kind=2"], ("f32",)),
    "filled": ("image", ["noise", "control=GOLDEN/{m}/control.png",
                         "image=GOLDEN/{m}-fill/image.png", "mask=GOLDEN/{m}-fill/mask.png",
                         "side=GOLDEN/{m}/controlnet_2"], ("f32",)),
    "painted": ("image", ["noise", "control=GOLDEN/{m}/control.png",
                          "mask=GOLDEN/{m}-mask/mask.png", "side=GOLDEN/{m}/controlnet_3"],
                ("f32",)),
    "varied": ("image", ["redux=GOLDEN/{m}/redux.png"], ("f32", "bf16")),
    "shaped": ("image", ["control=GOLDEN/{m}-mask/control.png", "image=GOLDEN/{m}-mask/image.png",
                         "mask=GOLDEN/{m}-mask/mask.png"], ("f32",)),
    "ends": ("image", ["image=GOLDEN/{m}/image.png", "last=GOLDEN/{m}/last.png"],
             ("f32", "bf16", "int8")),
    "film": ("image", ["noise", "image=GOLDEN/vace/image.png", "film=GOLDEN/vace/video",
                       "mask=GOLDEN/vace/mask", "influence=1.3"], ("f32", "bf16", "int8")),
    # two segments
    "driven": ("image", ["image=GOLDEN/animate/image.png", "drive=GOLDEN/animate", "segment=5"],
               ("f32", "bf16", "int8")),
    "replaced": ("image", ["noise", "image=GOLDEN/animate/image.png", "drive=GOLDEN/animate",
                           "segment=9", "film=GOLDEN/animate-five/video",
                           "mask=GOLDEN/animate-five/mask"], ("f32", "bf16")),
    "given": ("image", ["image=GOLDEN/{m}/image.png", "film=GOLDEN/{m}/video", "at=0,8",
                        "shares=1,0.6", "frames=25"], ("f32", "bf16", "int8")),
    "placed": ("image", ["image=GOLDEN/ltx2-cond/image.png", "film=GOLDEN/ltx2-cond/video",
                         "last=GOLDEN/ltx2-cond/last.png", "at=0,5", "shares=0.9,0.6,1",
                         "frames=25"], ("f32", "bf16", "int8")),
    "twice": ("image", ["image=GOLDEN/{m}/image.png", "film=GOLDEN/{m}/image_2.png", "at=0,8",
                        "shares=1,0.6", "upsampler=GOLDEN/{m}/latent_upsampler", "strength=0.8"],
              ("f32", "bf16")),
    "enlarged": ("image", ["image=GOLDEN/{m}-cond/image.png", "film=GOLDEN/{m}-cond/last.png",
                           "last=GOLDEN/{m}-cond/last.png", "at=0,1", "shares=0.9,0.6,1",
                           "upsampler=GOLDEN/{m}/latent_upsampler"], ("f32", "bf16")),
    "larger": ("image", ["upsampler=GOLDEN/{m}/latent_upsampler"], ("f32",)),
    "kept": ("image", ["image=GOLDEN/{m}/image.png", "steps=4", "references=2"], ("f32",)),
}
TEXT = ["cfg", "text=77"]
COG = ["cfg", "text=13", "video"]
LTX = ["cfg", "text=13", "video", "size=96x160", "frames=17"]
# as many rows of text as registers fit into
LTX2 = ["cfg", "text=12", "video", "size=96x160", "frames=17"]
H3 = ["cfg", "text=13", "video", "size=40x24", "frames=22"]
MOCHI = ["cfg", "text=13", "video", "size=48x80", "frames=13"]
WAN = ["cfg", "text=21", "video", "size=48x80", "frames=9"]

# A kind of token flow, models of it, their arguments and their features.
MODELS = [
    # images cross to the text
    ("cross", "MODEL", [], "plain sent far groups unipc heun lcm ancestral"),
    ("cross", "alpha sigma", ["size=144x112"], "begin"),
    # sums over tokens in place of keys and values, and convolutions over tokens
    ("linear", "sana", ["size=104x88"], "plain sent far fbcache"),
    ("linear", "sana-sprint", ["size=28x36"], "plain"),
    # with control networks
    ("linear", "sana-control", ["size=104x88"], "beside between"),
    ("linear", "sana-video", ["video", "size=80x48", "frames=9"], "plain"),
    ("linear", "sana-video-five", ["video", "size=24x32", "frames=9"], "plain still"),
    ("linear", "sana-video-720", ["video", "size=96x160", "frames=17"], "image"),
    ("linear", "sana-sprint-4", ["size=40x56"], "plain"),
    # a network that every rank computes as a whole, for passes and images of its own
    ("whole", "sdxl", ["cfg", "size=52x44"], "plain sent far lcm ancestral fbcache begin mask"),
    ("whole", "sdxl-turbo", ["cfg", "size=44x60"], "plain"),
    ("whole", "sd", ["cfg", "size=52x36"], "plain begin mask"),
    ("whole", "sd2", ["cfg", "size=44x52"], "plain"),
    # text flows through the blocks beside the image, or the video
    ("joint", "sd3", TEXT, "plain short long mask flow_heun"),
    ("joint", "sd35", TEXT, "plain short long fast layers"),
    ("joint", "qwen qwen-five", TEXT, "plain short long"),
    ("joint", "cog2b cog5b cog15", COG, "plain window"),
    ("joint", "cog5b-i2v cog15-i2v", COG, "image"),
    # beside the video in a narrower stream
    ("joint", "mochi mochi-five", MOCHI, "plain short"),
    # then in one sequence with it
    ("merged", "flux", TEXT, "plain short long sent far attention window scores fast flow_lcm "
                             "fbcache dbcache teacache taylorseer mask"),
    ("merged", "flux-schnell flux2 flux2-klein flux2-base chroma", TEXT, "plain short long"),
    # its short texts change too little from step to step for stale steps
    ("merged", "auraflow", TEXT, "plain"),
    ("merged", "flux-fill", TEXT, "fill"),
    ("merged", "flux-control", TEXT, "control shaped"),
    ("merged", "flux-controlnet", TEXT, "beside kinds"),
    # with rows of an image behind those of the text
    ("merged", "flux-redux", TEXT, "varied"),
    # which read pixels
    ("merged", "flux-controlnet-pixels", TEXT + ["size=80x48"], "beside between"),
    # in one sequence behind refiners
    ("refined", "zimage", TEXT, "steep short long share cut mask"),
    ("refined", "zimage-five", TEXT, "plain short"),
    # with control networks, whose hints are added behind blocks
    ("refined", "zimage-control", TEXT, "steered between filled"),
    # and of videos, where two passes have texts of different lengths
    ("clips", "hunyuanvideo hunyuanvideo-five", ["cfg", "text=77", "video", "size=80x48",
                                                 "frames=9"], "plain short window"),
    # whose first frame is an image in all steps, or an image is in further channels
    ("clips", "hunyuanvideo-i2v hunyuanvideo-i2v-33ch", ["cfg", "text=77", "video", "size=80x48",
                                                         "frames=9"], "image"),
    # refined whole on each rank that has some of it, beside rows that are not refined
    ("clips", "hunyuanvideo15 hunyuanvideo15-five", ["cfg", "text=77", "video", "size=80x48",
                                                     "frames=9"], "plain short"),
    # with rows of an image behind those of the text; and with the timestep of the next step
    ("clips", "hunyuanvideo15-i2v hunyuanvideo15-few", ["cfg", "text=77", "video", "size=80x48",
                                                        "frames=9"], "image"),
    # and with heads of keys that several heads of queries share
    ("grouped", "lumina2", ["cfg", "text=211"], "plain free early far"),
    ("grouped", "lumina2-five", ["cfg", "text=211"], "plain"),
    # and to which residuals of control networks are added
    ("joint", "sd3-control", TEXT, "beside between"),
    ("joint", "qwen-control", TEXT, "beside between painted"),
    ("grouped", "krea2", TEXT, "plain short long begin"),
    ("grouped", "krea2-turbo", TEXT, "plain"),
    # text that is read once, before the image
    ("prefix", "qwen21", ["cfg", "size=96x160"], "plain sent attention fbcache"),
    ("prefix", "qwen21-five", ["cfg", "size=160x96"], "plain"),
    # and with it a reference image
    ("prefix", "qwen21-edit", ["cfg", "text=77", "size=96x160"], "image"),
    # long skips between blocks, and stages
    ("skips", "hunyuan", ["size=144x112"], "plain rescale begin"),
    ("skips", "hunyuan12", ["size=144x112"], "plain"),
    # to which the blocks of control networks add
    ("skips", "hunyuan-control", ["size=144x112"], "beside between"),
    # two transformers, one behind the other in time
    ("two", "wan22 wan22-two", WAN, "plain"),
    # tokens of images beside those that are computed
    ("reference", "kontext", TEXT, "image kept"),
    ("reference", "qwen-edit", ["cfg", "text=511"], "image"),
    ("reference", "qwen-edit-plus", ["cfg", "text=511", "image=GOLDEN/qwen-edit/image.png"],
     "plain"),
    # and several layers of one image
    ("reference", "qwen-layered", ["cfg", "text=77", "length=1"], "image"),
    # which attend only to one another, and are computed once
    ("reference", "flux2-kv", ["cfg", "text=29", "image=GOLDEN/flux2-kv/image.png"],
     "plain short sent"),
    ("reference", "flux2-base flux2-klein", ["cfg", "text=41",
                                             "image=GOLDEN/flux2-images/image.png"], "plain"),
    # tokens of a video attend within frames, and over the frames at one place
    ("grouped", "latte", ["cfg", "text=24", "video"], "plain short"),
    # videos cross to the text, in patches of frames
    ("causal", "wan wan-five", WAN, "plain short window"),
    ("causal", "wan-i2v", WAN, "image"),
    # whose heads turn by angles of their own
    ("turned", "ltx ltx-five", LTX, "plain short"),
    ("turned", "ltx-i2v", LTX, "image"),
    ("turned", "ltx-cond", LTX, "plain given"),
    ("turned", "ltx-up", LTX[:3] + ["size=64x192", "frames=9"], "twice larger"),
    ("causal", "wan-flf wan-i2v-blind", WAN, "ends"),
    # and beside tokens of audio, to which those of the video attend, and the other way round
    ("beside", "ltx2", LTX2, "plain sent far window rescale placed"),
    ("beside", "ltx2", LTX2[:3] + ["size=64x192", "frames=9"],
     "larger enlarged"),
    ("beside", "ltx2-five", LTX2, "plain"),
    # with a pass in which a block's attention is perturbed
    ("beside", "ltx23", LTX2, "perturbed sent first placed"),
    # in one sequence with tokens of audio
    ("sounding", "minimaxh3", H3, "plain sent far window"),
    ("sounding", "minimaxh3-five", ["cfg", "text=13", "video", "size=64x96", "frames=8"], "plain"),
    # with the frame rate
    ("causal", "skyreels-df", WAN, "plain"),
    ("causal", "skyreels-i2v", WAN, "image"),
    # and of a second hidden state, that of a control video
    ("controlled", "vace vace-five", WAN, "plain film"),
    # with adapters whose tokens attend to rows of their own frame
    ("adapted", "animate", WAN, "driven"),
    ("adapted", "animate-five", WAN, "driven replaced"),
    ("causal", "wan-ti2v", ["cfg", "text=21", "video", "size=96x64", "frames=9"], "image"),
]


def candidates():
    """All launches that make sense: (kind, model, feature, type, ranks) and the row's arguments."""
    for kind, models, args, features in MODELS:
        for model in models.split():
            for feature in features.split():
                for type_ in FEATURES[feature][2]:
                    for ranks in RANKS:
                        yield (kind, model, feature, type_, ranks), args


def pairs(launch):
    """What a launch shows. In pairs 5, 7 and 8 ranks are one number, AVX2 and fp8 one type."""
    kind, model, feature, type_, ranks = launch
    group = FEATURES[feature][0]
    number = ranks if ranks in FIRST_RANKS else "other"
    type2 = type_ if type_ in ("f32", "bf16", "int8") else "other"
    return {("model", model), ("feature", feature), ("ranks", ranks), ("type", type_),
            (kind, number), (kind, type2), (type2, number), (kind, group), (group, type2),
            (group, number)}


def chosen():
    """Greedy: each launch has the most that no launch before it has, rare pairs first; of equals
    the one with the number of ranks and the type that are in fewest. Ends when nothing is left."""
    every = [(launch, args, pairs(launch)) for launch, args in candidates()]
    count = collections.Counter(p for c in every for p in c[2])
    gains = [math.fsum(count[p] ** -RARE for p in c[2]) for c in every]
    missing, used, launches = set(count), collections.Counter(), []
    while missing:
        allowed = FIRST_RANKS if len(launches) < FIRST else RANKS
        best = max((i for i, c in enumerate(every) if c[0][4] in allowed),
                   key=lambda i: (gains[i], -used[every[i][0][4]], -used[every[i][0][3]]))
        launch, args, new = every[best]
        new, missing = new & missing, missing - new
        gains = [math.fsum(count[p] ** -RARE for p in c[2] & missing) if c[2] & new else gain
                 for gain, c in zip(gains, every)]
        used.update((launch[4], launch[3]))
        launches.append((launch, args))
    return launches


def line(number, launch, args, folders):
    """The fields of a launch."""
    kind, model, feature, type_, ranks = launch
    _, own, _, program, env = FEATURES[feature] + ("test_parity", None)[len(FEATURES[feature]) - 3:]
    env = env if env and type_ == "f32" else TYPES[type_][1]
    folder = folders[model] if model == "MODEL" else "%s/%s" % (
        folders["FULL" if kind == "two" else "GOLDEN"], model)
    thin = PLANS[ranks] * math.prod(int(w[5:]) for w in own if w.startswith("thin="))
    kept = [a for a in args if a.split("=")[0] not in [o.split("=")[0] for o in own]]
    own = [w for w in own if not w.startswith("thin=")]
    words = [w.replace("GOLDEN", folders["GOLDEN"]).replace("{m}", model)
             for w in [folder] + TYPES[type_][0] + kept + own + ["thin=%d" % thin]]
    name = [w for w in (model, feature, type_) if w not in ("MODEL", "plain", "f32")]
    return "|".join(["_".join(name + [str(ranks)]), "first" if number < FIRST else "more", program,
                     str(ranks), env, "\t".join(words)])


def main():
    folders = dict(zip(("GOLDEN", "FULL", "MODEL"), sys.argv[1:4]))
    for i, (launch, args) in enumerate(chosen()):
        print(line(i, launch, args, folders))


main()
