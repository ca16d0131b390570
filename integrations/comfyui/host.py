"""Access to ComfyUI: tensors, folders of models, progress with previews, interrupts.

Modules of ComfyUI and torch are imported where they are used: the nodes load without them."""
import contextlib
import os
import threading

import numpy as np

PREVIEW_SIDE = 512      # maximum side of a preview in pixels
POLL_S = 0.05           # interval for polling the user's interrupt


def to_array(tensor):
    """Converts a tensor of ComfyUI to a float32 array."""
    if hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu().float().numpy()
    return np.ascontiguousarray(tensor, dtype=np.float32)


def to_tensor(array):
    """Converts an array to a tensor of ComfyUI: images [B,H,W,3] of 0 to 1."""
    import torch
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))


def to_image_and_mask(array):
    """Converts an array [B,H,W,3] or, with alpha, [B,H,W,4] to images and masks of ComfyUI. A mask
    is 1 where the image is transparent, as that of Load Image."""
    mask = 1 - array[..., 3] if array.shape[-1] == 4 else np.zeros(array.shape[:-1])
    return to_tensor(array[..., :3]), to_tensor(mask)


def to_image(array):
    """Converts an image [H,W,C] or [H,W] of 0 to 1 to a PIL image."""
    from PIL import Image
    return Image.fromarray(np.clip(np.rint(array * 255.0), 0, 255).astype(np.uint8))


# ---- folders ---------------------------------------------------------------------------------

# names of the file that lists a model's components
INDEXES = ("model_index.json", "modular_model_index.json")


def _hub():
    """Returns the folder of the Hugging Face cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    home = os.environ.get("HF_HOME") or os.path.join(cache, "huggingface")
    return os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")


def _in_folders():
    """Maps names of models in ComfyUI's folders "diffusers" to their directories."""
    import folder_paths
    found = {}
    for top in folder_paths.get_folder_paths("diffusers"):
        for at, below, files in os.walk(top, followlinks=True):
            if any(name in files for name in INDEXES):
                below.clear()
                found.setdefault(os.path.relpath(at, top), at)
    return found


def _in_hub():
    """Lists the models in the Hugging Face cache as org/name."""
    found = []
    hub = _hub()
    for name in os.listdir(hub) if os.path.isdir(hub) else ():
        snapshots = os.path.join(hub, name, "snapshots")
        if name.startswith("models--") and os.path.isdir(snapshots) and any(
                os.path.exists(os.path.join(snapshots, s, name))
                for s in os.listdir(snapshots) for name in INDEXES):
            found.append(name[len("models--"):].replace("--", "/"))
    return found


def model_names():
    """Lists models in ComfyUI's folders "diffusers" and in the Hugging Face cache."""
    return sorted(_in_folders()) + sorted(_in_hub())


def model_path(name):
    """Converts a name of model_names to a path for the library: a directory, or the name."""
    return _in_folders().get(name, name)


def lora_names():
    import folder_paths
    return list(folder_paths.get_filename_list("loras"))


def lora_path(name):
    import folder_paths
    path = folder_paths.get_full_path("loras", name)
    if path is None:
        raise RuntimeError(f"there is no LoRA file {name} in ComfyUI's folders of LoRA files")
    return path


def weight_path(name):
    """Finds a weight file in ComfyUI's folders, or returns the path."""
    import folder_paths
    for folder in ("diffusion_models", "text_encoders", "vae", "checkpoints"):
        path = folder_paths.get_full_path(folder, name)
        if path is not None:
            return path
    return name


# ---- a running request -----------------------------------------------------------------------

class Progress:
    """ComfyUI's progress bar of a node."""

    def __init__(self, steps, preview):
        import comfy.utils
        self.preview = preview          # show previews
        self._bar = comfy.utils.ProgressBar(max(steps, 1))

    def step(self, done, steps, image=None):
        """Reports a step and shows `image` (PIL). Raises ComfyUI's exception on an interrupt."""
        check_interrupt()
        shown = ("JPEG", image, PREVIEW_SIDE) if image is not None and self.preview else None
        self._bar.update_absolute(done, steps, shown)


def check_interrupt():
    """Raises ComfyUI's exception if the user has interrupted."""
    import comfy.model_management
    comfy.model_management.throw_exception_if_processing_interrupted()


@contextlib.contextmanager
def interruptible(cancel):
    """Calls `cancel` repeatedly while the user's interrupt is pending, also in a step and
    before the request has begun, and replaces the exception of the block by ComfyUI's."""
    import comfy.model_management
    over = threading.Event()

    def watch():
        while not over.wait(POLL_S):
            if comfy.model_management.processing_interrupted():
                cancel()
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    except Exception:
        check_interrupt()
        raise
    finally:
        over.set()
        thread.join()
