"""The nodes. Nodes that open a model return an XDIT_PIPE, in this process (local.py) or on a server
(server.py). Nodes that sample return an XDIT_LATENT, which refers to its pipe for decoding. A
number of 0, or a guidance scale below 0, means the model's default."""
import json

from . import host, local, server

CATEGORY = "xdit"
NONE = "(none)"
OWN = "(the model's)"
TYPES = [OWN, "f32", "bf16", "f16"]
WEIGHTS = [OWN, "int8", "fp8", "int4", "bf16", "f32", "auto"]
SAMPLERS = [OWN, "dpm++", "dpm++-single", "unipc", "euler", "euler-ancestral", "heun", "lcm", "tcd",
            "ddim", "ddpm", "pndm", "flow-euler", "flow-heun", "flow-lcm", "scm", "flow-points",
            "cogvideox-ddim", "cogvideox-dpm"]
MORE = ("one per line, such as cache = fbcache:0.12 or true_cfg_scale = 4; see xdit generate "
        "--help all")


def _text(default="", **more):
    return ("STRING", {"default": default, **more})


def _number(default, most, tip, least=0, step=1):
    return ("INT", {"default": default, "min": least, "max": most, "step": step, "tooltip": tip})


def _real(default, least, most, tip, step=0.05):
    return ("FLOAT", {"default": default, "min": least, "max": most, "step": step, "tooltip": tip})


PIPE = ("XDIT_PIPE", {"tooltip": "output of xdit Load Model or xdit Connect to Server"})
PROMPTS = {
    "prompt": _text(multiline=True, dynamicPrompts=True),
    "negative_prompt": _text(multiline=True, dynamicPrompts=True),
}
STEPS = {
    "steps": _number(0, 1000, "denoising steps; 0: the model's default"),
    "guidance": _real(-1.0, -1.0, 1000.0, "guidance_scale; below 0: the model's default"),
    "seed": ("INT", {"default": 0, "min": 0, "max": 2**64 - 1, "control_after_generate": True}),
    "sampler": (SAMPLERS, {"tooltip": "sampler; it must suit the model (flow or diffusion)"}),
}
SIZE = {
    "width": _number(0, 16384, "pixels; 0: the model's default", step=8),
    "height": _number(0, 16384, "pixels; 0: the model's default", step=8),
}
LAST = {
    "preview": ("BOOLEAN", {"default": True, "tooltip": "show previews of each step"}),
    "options": _text(multiline=True, tooltip="other options, " + MORE),
}
CONTROL = {"control_image": ("IMAGE", {"tooltip": "edges or depth, for models that read a control "
                                                  "image"}),
           "controls": ("XDIT_CONTROLS", {"tooltip": "images for control networks, of xdit "
                                                     "Control"}),
           "control_preprocess": _text(tooltip="makes the control image of a photo: canny, "
                                       "canny:LOW:HIGH, tile, gray, blur or blur:SIGMA; empty: it "
                                       "is a control image")}
# numbers of each control image, and their defaults; a mode below 0: the network has none
CONTROL_NUMBERS = (("conditioning_scale", 1.0), ("control_guidance_start", 0.0),
                   ("control_guidance_end", 1.0), ("control_mode", -1))


def read_options(text):
    """Parses lines "name = value". A value is a number, true or false, or else a text."""
    found = {}
    for line in text.splitlines():
        name, equals, value = (p.strip() for p in line.partition("="))
        if not name or name.startswith("#"):
            continue
        if not equals or not value:
            raise ValueError(f"an option must be name = value, not {line.strip()!r}")
        try:
            read = json.loads(value)
        except ValueError:
            read = value
        found[name.replace("-", "_")] = read if isinstance(read, (bool, int, float)) else value
    return found


def _options_are_right(text):
    try:
        read_options(text or "")    # None: the value is linked
    except ValueError as e:
        return str(e)
    return True


def _given(**values):
    """Returns the values that differ from the model's default."""
    return {k: v for k, v in values.items() if v not in (None, "", OWN, 0)}


def _request(prompt, negative_prompt, steps, guidance, seed, sampler, options, **more):
    request = {"prompt": prompt, "seed": seed}
    request.update(_given(negative_prompt=negative_prompt, num_inference_steps=steps,
                          scheduler=sampler, **more))
    if guidance >= 0:
        request["guidance_scale"] = guidance
    request.update(read_options(options))
    return request


def _images(request, image, mask=None, strength=0.0, control=None, controls=(), preprocess=""):
    """Adds start images, or images to edit, from a tensor [B,H,W,C], a mask, and control images."""
    if control is not None and controls:
        raise ValueError("control_image and controls were passed: add the image by xdit Control")
    if control is not None:
        request["control_image"] = host.to_array(control)[0]
    if preprocess and control is None and not controls:
        raise ValueError(f"control_preprocess is {preprocess}, but there is no control image")
    names = [c[-1] or "none" for c in controls]
    if preprocess:
        request["control_preprocess"] = preprocess
    elif any(n != "none" for n in names):
        request["control_preprocess"] = ",".join(names)
    if controls:
        request["control_image"] = [c[0] for c in controls]
        for i, (name, default) in enumerate(CONTROL_NUMBERS, 1):
            numbers = [c[i] for c in controls]
            if any(v != default for v in numbers):
                request[name] = [max(v, 0) for v in numbers] if name == "control_mode" else numbers
    if image is not None:
        request["image"] = list(host.to_array(image))
        if strength > 0:
            request["strength"] = strength
    if mask is not None:
        if image is None:
            raise ValueError("a mask was passed without an image to inpaint")
        m = host.to_array(mask)
        request["mask_image"] = m[0] if m.ndim == 3 else m
    return request


class LoadModel:
    """Opens a model in ComfyUI's process. The first request loads the weights, which are kept."""

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {
                "model": ([NONE, *host.model_names()],
                          {"tooltip": "directories of diffusers below ComfyUI's models/diffusers, "
                                      "and models of the Hugging Face cache"}),
                "path": _text(tooltip="a directory, or org/name, used instead of the model above"),
                "dtype": (TYPES, {"tooltip": "compute type"}),
                "weights_dtype": (WEIGHTS, {"tooltip": "type of the transformer's weights"}),
                "text_weights_dtype": (WEIGHTS, {"tooltip": "type of the text weights"}),
                "device": (["auto", "cpu", "cuda"],),
                "offload": ([OWN, "none", "auto", "stream"],
                            {"tooltip": "how to handle weights that exceed the memory"}),
                "memory": _text(tooltip="memory limit, such as 12GB; empty: all free memory"),
                "attention": ([OWN, "auto", "int8"],),
                "cache": _text(tooltip="step cache, such as fbcache:0.12"),
            },
            "optional": {
                "files": _text(multiline=True, tooltip="weight files that replace the model's, "
                               "one per line, such as transformer = flux1-dev-Q4_K_S.gguf; in "
                               "ComfyUI's folders, or paths"),
                "settings": _text(multiline=True, tooltip="other arguments of xdit's "
                                  "Pipeline.from_pretrained, such as threads = 8"),
                "controlnets": _text(multiline=True, tooltip="control networks, one per line: "
                                     "directories, or org/name"),
            },
        }

    RETURN_TYPES = ("XDIT_PIPE",)
    RETURN_NAMES = ("pipe",)
    FUNCTION = "load"
    CATEGORY = CATEGORY
    DESCRIPTION = "Opens a model for xdit in ComfyUI's process."

    def load(self, model, path, dtype, weights_dtype, text_weights_dtype, device, offload, memory,
             attention, cache, files="", settings="", controlnets=""):
        path = path.strip() or ("" if model == NONE else host.model_path(model))
        if not path:
            raise ValueError("choose a model, or set its path")
        given = _given(dtype=dtype, weights_dtype=weights_dtype, device=device, offload=offload,
                       text_weights_dtype=text_weights_dtype, memory=memory.strip())
        given.update(read_options(settings))
        sides = tuple(line.strip() for line in controlnets.splitlines() if line.strip())
        if sides:
            given["controlnet"] = sides
        given["files"] = {k: host.weight_path(str(v)) for k, v in read_options(files).items()}
        return (local.open_model(path, given, _given(attention=attention, cache=cache.strip())),)


class Connect:
    """A model of a running server, for example on another machine or with several ranks."""

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {
                "address": _text("http://127.0.0.1:8080", tooltip="address that xdit serve prints; "
                                 f"its key is read from the variable {server.KEY}"),
                "model": _text(tooltip="model name on the server; empty: the first one"),
            },
            "optional": {"options": _text(multiline=True, tooltip="for all requests, " + MORE)},
        }

    RETURN_TYPES = ("XDIT_PIPE",)
    RETURN_NAMES = ("pipe",)
    FUNCTION = "connect"
    CATEGORY = CATEGORY
    DESCRIPTION = "Takes a model of a running xdit serve."

    @classmethod
    def VALIDATE_INPUTS(cls, address=None):
        try:
            if address is not None:     # it comes from a widget
                server.parse(address)
        except ValueError as e:
            return str(e)
        return True

    def connect(self, address, model, options=""):
        return (server.connect(address, model.strip(), read_options(options)),)


class Lora:
    """Adds a LoRA file to later requests."""

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {
                "pipe": PIPE,
                "lora": ([NONE, *host.lora_names()],),
                "strength": _real(1.0, -100.0, 100.0, "the file's differences times this"),
            },
            "optional": {"server_name": _text(tooltip="of a server's model: the server's name of "
                                              "the file, if it is another one")},
        }

    RETURN_TYPES = ("XDIT_PIPE",)
    RETURN_NAMES = ("pipe",)
    FUNCTION = "add"
    CATEGORY = CATEGORY
    DESCRIPTION = "Adds a LoRA file. Nodes one behind the other add several."

    def add(self, pipe, lora, strength, server_name=""):
        name = "" if lora == NONE else lora
        return (pipe.with_lora(name, server_name.strip(), strength),)


class Sample:
    """Generates latents from text, or from latents of a start image."""

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {"pipe": PIPE, **PROMPTS, **SIZE, **STEPS,
                         "batch_size": _number(1, 4096, "images, with the seeds that follow", 1)},
            "optional": {
                "image": ("IMAGE", {"tooltip": "start image, or image to edit; a batch of several "
                                               "for models that read several"}),
                "mask": ("MASK", {"tooltip": "1: regenerated, 0: kept"}),
                "strength": _real(0.0, 0.0, 1.0, "fraction of the steps that run on the image; "
                                                 "0: default"),
                **LAST, **CONTROL,
            },
        }

    RETURN_TYPES = ("XDIT_LATENT",)
    RETURN_NAMES = ("latent",)
    FUNCTION = "sample"
    CATEGORY = CATEGORY
    DESCRIPTION = "Denoises. xdit Decode makes images of the latents."

    @classmethod
    def VALIDATE_INPUTS(cls, options=""):
        return _options_are_right(options)

    def sample(self, pipe, prompt, negative_prompt, width, height, steps, guidance, seed, sampler,
               batch_size, image=None, mask=None, strength=0.0, preview=True, options="",
               control_image=None, controls=(), control_preprocess=""):
        request = _request(prompt, negative_prompt, steps, guidance, seed, sampler, options,
                           width=width, height=height)
        if batch_size > 1:
            request["num_images_per_prompt"] = batch_size
        _images(request, image, mask, strength, control_image, controls,
                control_preprocess.strip())
        return (pipe.sample(request, preview),)


class Decode:
    """Decodes latents to images or to the frames of a video."""

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {"latent": ("XDIT_LATENT", {"tooltip": "output of xdit Sample"})},
            "optional": {"tiled": ("BOOLEAN", {"default": False, "tooltip":
                                               "decode in overlapping tiles, for less memory"})},
        }

    RETURN_TYPES = ("IMAGE", "MASK")
    FUNCTION = "decode"
    CATEGORY = CATEGORY
    DESCRIPTION = "Makes images of latents with the autoencoder of the model that sampled them."

    def decode(self, latent, tiled=False):
        return host.to_image_and_mask(latent["pipe"].decode(latent, tiled))


class ImageToImage:
    """Image to image: starts from the image, inpaints or edits it, depending on the model."""

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {"pipe": PIPE, "image": ("IMAGE",), **PROMPTS,
                         "strength": _real(0.0, 0.0, 1.0, "share of the steps that run on the "
                                                          "image; 0: usual"),
                         **SIZE, **STEPS},
            "optional": {"mask": ("MASK", {"tooltip": "1: regenerated, 0: kept"}), **LAST,
                         **CONTROL},
        }

    RETURN_TYPES = ("IMAGE", "MASK")
    FUNCTION = "generate"
    CATEGORY = CATEGORY
    DESCRIPTION = "Generates from an image: image to image, inpainting, or editing."

    @classmethod
    def VALIDATE_INPUTS(cls, options=""):
        return _options_are_right(options)

    def generate(self, pipe, image, prompt, negative_prompt, strength, width, height, steps,
                 guidance, seed, sampler, mask=None, preview=True, options="",
                 control_image=None, controls=(), control_preprocess=""):
        request = _request(prompt, negative_prompt, steps, guidance, seed, sampler, options,
                           width=width, height=height)
        _images(request, image, mask, strength, control_image, controls,
                control_preprocess.strip())
        images, _ = pipe.generate(request, preview, False)
        return host.to_image_and_mask(images)


class Control:
    """Adds an image for a control network."""

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {
                "image": ("IMAGE", {"tooltip": "edges, depth or similar"}),
                "strength": _real(1.0, -10.0, 10.0, "factor of what the network adds"),
                "start": _real(0.0, 0.0, 1.0, "fraction of the steps before the first one that "
                                              "uses the network"),
                "end": _real(1.0, 0.0, 1.0, "fraction of the steps after which none uses the "
                                            "network"),
                "mode": _number(-1, 100, "kind of the image, for a network of several kinds "
                                         "(Union); -1: the network has one kind", -1),
            },
            "optional": {
                "controls": ("XDIT_CONTROLS", {
                    "tooltip": "images for the networks before this one"}),
                "preprocess": CONTROL["control_preprocess"],
            },
        }

    RETURN_TYPES = ("XDIT_CONTROLS",)
    RETURN_NAMES = ("controls",)
    FUNCTION = "add"
    CATEGORY = CATEGORY
    DESCRIPTION = ("Gives a control network its image, strength and steps. Nodes one behind the "
                   "other give one to each network, in the order of the networks.")

    def add(self, image, strength, start, end, mode, controls=(), preprocess=""):
        return ((*controls, (host.to_array(image)[0], strength, start, end, mode,
                             preprocess.strip())),)


class Condition:
    """Adds an image, or frames of a video, that determine frames of a generated video."""

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {
                "image": ("IMAGE", {"tooltip": "an image, or the frames of a video"}),
                "frame_index": _number(0, 100000, "frame of the result at which it begins"),
                "strength": _real(1.0, 0.0, 1.0, "its influence on its frames"),
            },
            "optional": {"conditions": ("XDIT_CONDITIONS", {
                "tooltip": "further images and videos"})},
        }

    RETURN_TYPES = ("XDIT_CONDITIONS",)
    RETURN_NAMES = ("conditions",)
    FUNCTION = "add"
    CATEGORY = CATEGORY
    DESCRIPTION = ("Puts an image or a video at a frame of the result, for models such as "
                   "LTX-Video 0.9.5. Nodes one behind the other add several.")

    def add(self, image, frame_index, strength, conditions=()):
        frames = host.to_array(image)
        one = (frames[0] if len(frames) == 1 else frames, frame_index, strength)
        return ((*conditions, one),)


class Video:
    """Generates a video from text, or from its first and last frames."""

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {"pipe": PIPE, **PROMPTS, **SIZE,
                         "num_frames": _number(0, 100000, "0: the model's"),
                         "fps": _real(0.0, 0.0, 1000.0, "frames a second; 0: the model's", 1.0),
                         **STEPS},
            "optional": {"image": ("IMAGE", {"tooltip": "the first frame"}),
                         "last_image": ("IMAGE", {"tooltip": "the last frame"}), **LAST,
                         "control_video": ("IMAGE", {
                             "tooltip": "frames to change, or their edges, depth or poses, for "
                                        "models that read a control video; image then has "
                                        "reference images"}),
                         "control_mask": ("MASK", {
                             "tooltip": "where frames of control_video are generated: one mask, or "
                                        "one a frame"}),
                         "conditions": ("XDIT_CONDITIONS", {
                             "tooltip": "images and videos at frames of the result, of xdit "
                                        "Condition"})},
        }

    RETURN_TYPES = ("IMAGE", "FLOAT")
    RETURN_NAMES = ("frames", "fps")
    FUNCTION = "generate"
    CATEGORY = CATEGORY
    DESCRIPTION = "Generates the frames of a video; Create Video makes a video of them."

    @classmethod
    def VALIDATE_INPUTS(cls, options=""):
        return _options_are_right(options)

    def generate(self, pipe, prompt, negative_prompt, width, height, num_frames, fps, steps,
                 guidance, seed, sampler, image=None, last_image=None, preview=True, options="",
                 control_video=None, control_mask=None, conditions=()):
        request = _request(prompt, negative_prompt, steps, guidance, seed, sampler, options,
                           width=width, height=height, num_frames=num_frames, fps=fps)
        _images(request, image)
        if conditions and image is not None:
            raise ValueError("image and conditions were passed: add the image by xdit Condition")
        if conditions:
            request["image"], request["frame_index"], request["condition_strength"] = (
                list(values) for values in zip(*conditions))
        if last_image is not None:
            request["last_image"] = host.to_array(last_image)[0]
        if control_video is not None:
            request["control_video"] = host.to_array(control_video)
        if control_mask is not None:
            m = host.to_array(control_mask)
            request["mask_image"] = m[..., None] if m.ndim == 3 else m[None, ..., None]
        frames, rate = pipe.generate(request, preview, True)
        return (host.to_tensor(frames), rate)


_NODES = (
    ("XditLoadModel", LoadModel, "xdit Load Model"),
    ("XditConnect", Connect, "xdit Connect to Server"),
    ("XditLora", Lora, "xdit LoRA"),
    ("XditSample", Sample, "xdit Sample"),
    ("XditDecode", Decode, "xdit Decode"),
    ("XditImageToImage", ImageToImage, "xdit Image to Image"),
    ("XditControl", Control, "xdit Control"),
    ("XditCondition", Condition, "xdit Condition"),
    ("XditVideo", Video, "xdit Video"),
)
NODE_CLASS_MAPPINGS = {name: kind for name, kind, _ in _NODES}
NODE_DISPLAY_NAME_MAPPINGS = {name: shown for name, _, shown in _NODES}
