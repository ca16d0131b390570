"""A model of a server, `xdit serve`, over HTTP. Needs only the packages of ComfyUI."""
import base64
import http.client
import io
import json
import os
import socket
import time
import urllib.parse

import numpy as np

from . import host

KEY = "XDIT_API_KEY"    # environment variable, which xdit serve reads as well
POLL_S = 0.25           # interval for polling the state of a video


def parse(address):
    """Parses the address of a server. Raises ValueError."""
    parts = urllib.parse.urlsplit(address.strip().rstrip("/"))
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path or parts.query:
        raise ValueError("the address of a server must be such as http://127.0.0.1:8080, not "
                         f"{address!r}")
    return parts


def connect(address, model, request):
    """Opens a model of a server by name; "": the first one."""
    server = Server(parse(address), model, request, ())
    server.read_model()
    return server


class Server:
    """A model of a server, with options for all requests, and LoRA files by name."""

    def __init__(self, parts, model, request, loras):
        self._parts, self._model, self._request, self._loras = parts, model, request, loras
        self.makes_videos = False

    def with_lora(self, name, server_name, strength):
        name = server_name or os.path.splitext(os.path.basename(name))[0]
        if not name:
            return self
        lora = {"name": name, "scale": strength}
        other = Server(self._parts, self._model, self._request, (*self._loras, lora))
        other.makes_videos = self.makes_videos
        return other

    # ---- requests

    def _connection(self):
        kind = (http.client.HTTPSConnection if self._parts.scheme == "https"
                else http.client.HTTPConnection)
        c = kind(self._parts.hostname, self._parts.port, timeout=30)
        try:
            c.connect()
        except OSError as e:
            raise RuntimeError(f"no server answers at {self._parts.geturl()} ({e}): start one by "
                               "`xdit serve --model DIR`") from e
        c.sock.settimeout(None)
        return c

    def _send(self, c, method, path, fields=None):
        """Returns the reply to a request. Raises RuntimeError with the server's message."""
        headers = {"Accept": "*/*"}
        if os.environ.get(KEY):
            headers["Authorization"] = "Bearer " + os.environ[KEY]
        body = None
        if fields is not None:
            body = json.dumps(fields)
            headers["Content-Type"] = "application/json"
        c.request(method, path, body, headers)
        reply = c.getresponse()
        if reply.status >= 400:
            raise RuntimeError(_sentence(reply.read(), reply.status))
        return reply

    def _ask(self, method, path, fields=None):
        c = self._connection()
        try:
            return self._send(c, method, path, fields).read()
        finally:
            c.close()

    def read_model(self):
        """Finds out whether the model generates images or videos."""
        models = json.loads(self._ask("GET", "/v1/models"))["data"]
        names = [m["id"] for m in models]
        if self._model and self._model not in names:
            raise RuntimeError(f"the server at {self._parts.geturl()} has no model {self._model}; "
                               f"it has {', '.join(names)}")
        model = models[names.index(self._model) if self._model else 0]
        self.makes_videos = model["makes"] == "video"

    def _fields(self, request):
        """Returns the JSON of a request, with arrays as data URLs."""
        fields = {**self._request, **request}
        if self._model:
            fields["model"] = self._model
        if self._loras:
            fields["lora"] = list(self._loras)
        if "num_images_per_prompt" in fields:
            fields["n"] = fields.pop("num_images_per_prompt")
        images = fields.pop("image", None)
        if images is not None:
            fields["image"] = [_video_url(i) if i.ndim == 4 else _data_url(i) for i in images]
        for name, key in (("mask_image", "mask"), ("last_image", "last_image"),
                          ("control_image", "control_image")):
            if fields.get(name) is not None:
                array = fields.pop(name)
                fields[key] = ([_data_url(a) for a in array] if isinstance(array, list) else
                               _video_url(array) if array.ndim == 4 else _data_url(array))
        if "control_video" in fields:
            fields["control_video"] = _video_url(fields["control_video"])
        return fields

    # ---- images

    def sample(self, request, preview):
        """Returns decoded images in place of latents, since a server decodes its latents itself."""
        images, _ = self.generate(request, preview, False)
        return {"samples": host.to_tensor(np.zeros((len(images), 0))), "pipe": self,
                "images": images}

    def decode(self, latent, tiled):
        return latent["images"]

    def generate(self, request, preview, video):
        """Returns images or video frames as an array [B,H,W,3] or, with alpha, [B,H,W,4], and the
        frames per second."""
        if video != self.makes_videos:
            raise RuntimeError("the server's model generates " + (
                "images: use xdit Sample, or xdit Image to Image" if video
                else "videos: use xdit Video"))
        if video:
            return self._make_video(self._fields(request), preview)
        fields = {**self._fields(request), "stream": True, "progress": True}
        if preview:
            fields["partial_images"] = 3
        path = "/v1/images/edits" if "image" in fields else "/v1/images/generations"
        return self._read_events(path, fields, preview), 0.0

    def _read_events(self, path, fields, preview):
        progress = host.Progress(fields.get("num_inference_steps") or 1, preview)
        made, at = [], (0, 1)
        c = self._connection()
        s = c.sock                      # the connection drops it when the reply begins

        def leave():                    # the server then cancels the request
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:             # it is closed
                pass
        try:
            with host.interruptible(leave):
                for event in _events(self._send(c, "POST", path, fields)):
                    kind = event["type"].rsplit(".", 1)[-1]
                    if kind == "error":
                        raise RuntimeError(event["error"]["message"])
                    if kind == "progress" and event["steps"]:
                        before = (event["image"] - 1) * event["steps"] if event["image"] else 0
                        at = (before + event["step"], event["images"] * event["steps"])
                        progress.step(*at)
                    elif kind == "partial_image":
                        progress.step(*at, _read_image(base64.b64decode(event["b64_json"])))
                    elif kind == "completed":
                        made.append(_read_image(base64.b64decode(event["b64_json"])))
                if not made:
                    raise RuntimeError(f"the server at {self._parts.geturl()} disconnected before "
                                       "the request")
        finally:
            c.close()
        return np.stack([_levels(im) for im in made])

    # ---- videos

    def _make_video(self, fields, preview):
        progress = host.Progress(100, preview)
        fields.setdefault("output_format", "mp4" if _has_av() else "gif")
        if preview:
            fields.setdefault("previews", 8)
        video = json.loads(self._ask("POST", "/v1/videos", fields))
        path, shown = "/v1/videos/" + video["id"], 0
        try:
            while video["status"] in ("queued", "in_progress", "cancelling"):
                time.sleep(POLL_S)
                host.check_interrupt()
                video = json.loads(self._ask("GET", path))
                image = None
                if preview and video["previews"] > shown:
                    shown = video["previews"]
                    image = _read_image(self._ask("GET", path + "/content?variant=preview"))
                progress.step(video["progress"], 100, image)
        except BaseException:
            self._ask("POST", path + "/cancel")
            raise
        if video["status"] != "completed":
            raise RuntimeError((video.get("error") or {}).get("message") or
                               f"the server has {video['status']} the video")
        frames = _read_frames(self._ask("GET", path + "/content"), fields["output_format"])
        self._ask("DELETE", path)
        told = video["parameters"]
        # H.264 needs even sides: odd ones were padded by a row or column.
        return frames[:, :told["height"], :told["width"]], float(told["fps"])


def _sentence(body, status):
    try:
        return json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return f"the server replied with status {status}"


def _events(reply):
    """Yields the data of a stream of events."""
    for line in reply:
        if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
            yield json.loads(line[len(b"data: "):])


def _data_url(array):
    data = io.BytesIO()
    host.to_image(array).save(data, "PNG")
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()


def _video_url(frames):
    """Encodes frames [F,H,W,C] of 0 to 1 without loss: FFV1 in Matroska."""
    if not _has_av():
        raise RuntimeError("frames are sent to a server as a video, and ComfyUI's Python lacks "
                           "PyAV: pip install av, or open the model with xdit Load Model")
    import av
    data = io.BytesIO()
    levels = np.clip(np.rint(frames * 255.0), 0, 255).astype(np.uint8)
    levels = np.ascontiguousarray(np.broadcast_to(levels, levels.shape[:3] + (3,)))
    with av.open(data, "w", format="matroska") as film:
        stream = film.add_stream("ffv1", rate=24)
        stream.height, stream.width = levels.shape[1:3]
        stream.pix_fmt = "bgr0"
        for frame in levels:
            film.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        film.mux(stream.encode())
    return "data:video/x-matroska;base64," + base64.b64encode(data.getvalue()).decode()


def _read_image(data):
    from PIL import Image
    image = Image.open(io.BytesIO(data))
    return image if image.mode == "RGBA" else image.convert("RGB")


def _levels(image):
    return np.asarray(image, dtype=np.float32) / 255


def _has_av():
    try:
        import av       # ComfyUI installs it for its video nodes
    except ImportError:
        return False
    return bool(av)


def _read_frames(data, kind):
    if kind == "gif":
        from PIL import Image, ImageSequence
        with Image.open(io.BytesIO(data)) as film:
            return np.stack([_levels(f.convert("RGB")) for f in ImageSequence.Iterator(film)])
    import av
    with av.open(io.BytesIO(data)) as film:
        return np.stack([_levels(f.to_ndarray(format="rgb24")) for f in film.decode(video=0)])
