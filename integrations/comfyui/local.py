"""A model in ComfyUI's process, by the Python package xdit."""
import weakref

from . import host

_open = weakref.WeakValueDictionary()   # pipelines by settings, shared by nodes


def _package():
    try:
        import xdit
    except ImportError as e:
        raise RuntimeError(f"the Python package xdit cannot be imported ({e}): run `pip install .` "
                           "in xdit's source tree with ComfyUI's Python, or use the node xdit "
                           "Connect to Server") from e
    return xdit


def open_model(path, settings, request):
    """Opens a model by path or name. settings: arguments of Pipeline.from_pretrained. request:
    options for all requests."""
    xdit = _package()
    files = dict(settings.pop("files", {}))
    key = (path, tuple(sorted(settings.items())), tuple(sorted(files.items())))
    pipe = _open.get(key)
    if pipe is None:
        pipe = xdit.Pipeline.from_pretrained(path, files=files, **settings)
        pipe.set_progress_bar_config(disable=True)
        _open[key] = pipe
    return Local(pipe, request, ())


class Local:
    """A pipeline, with options for all requests, and LoRA files."""

    def __init__(self, pipe, request, loras):
        self._pipe, self._request, self._loras = pipe, request, loras

    def with_lora(self, name, server_name, strength):
        if not name:
            return self
        return Local(self._pipe, self._request, (*self._loras, (host.lora_path(name), strength)))

    def _run(self, request, preview, output_type):
        request = {**self._request, **request}
        progress = host.Progress(request.get("num_inference_steps") or 1, preview)
        self._pipe.unload_lora_weights()
        for path, strength in self._loras:
            self._pipe.load_lora_weights(path, scale=strength)
        n = request.get("num_images_per_prompt", 1)
        done = {"images": 0}

        def total(step, steps):
            return done["images"] * steps + step + 1, n * steps

        def at_preview(image, step, steps):
            progress.step(*total(step, steps), image)
            done["images"] += step + 1 == steps

        def at_step(pipe, step, timestep, values):
            host.check_interrupt()
        with host.interruptible(self._pipe.cancel):
            return self._pipe(callback_on_step_end=at_step, on_preview=at_preview,
                              output_type=output_type, **request)

    def sample(self, request, preview):
        """Generates latents; returns them with the arguments that decoding needs."""
        out = self._run(request, preview, "latent")
        values = out.frames if self._pipe.makes_videos else out.images
        same = ("prompt", "negative_prompt", "seed", "width", "height", "num_frames", "seconds",
                "fps", "max_area", "no_auto_resize", "no_resolution_binning")
        made = {k: v for k, v in {**self._request, **request}.items() if k in same}
        return {"samples": host.to_tensor(values), "pipe": self, "made": made}

    def decode(self, latent, tiled):
        """Decodes latents to an array [B,H,W,3] or, with alpha, [B,H,W,4]."""
        more = {"enable_tiling": True} if tiled else {}
        with host.interruptible(self._pipe.cancel):
            out = self._pipe.decode(host.to_array(latent["samples"]), output_type="np",
                                    **latent["made"], **more)
        return self._flat(out)

    def generate(self, request, preview, video):
        """Returns images or video frames as an array [B,H,W,3] or, with alpha, [B,H,W,4], and the
        frames per second."""
        if video != self._pipe.makes_videos:
            raise RuntimeError(f"the model {self._pipe.model} generates " + (
                "images: use xdit Sample, or xdit Image to Image" if video
                else "videos: use xdit Video"))
        out = self._run(request, preview, "np")
        return self._flat(out), float(out.parameters[0].get("fps", 0))

    def _flat(self, out):
        """Concatenates the frames of several videos, or the layers of several images."""
        values = out.frames if self._pipe.makes_videos else out.images
        return values.reshape(-1, *values.shape[-3:])
