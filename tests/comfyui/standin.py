"""A stand-in for ComfyUI, which is too large for the machines that run the tests.

It has as much of ComfyUI's interface as the nodes use: the modules that they import (torch too,
where there is none, with arrays of numpy for tensors), a loader of folders of nodes, checks of
workflows in the API's format, and a loop that runs them. Nodes of ComfyUI in workflows are stood in
for by their inputs and outputs. real.py does the same with ComfyUI itself."""
import importlib.util
import pathlib
import sys
import types

import numpy as np


class Tensor:
    """What the nodes use of torch.Tensor."""

    def __init__(self, array):
        self._array = array
        self.shape = array.shape

    def detach(self):
        return self

    cpu = float = detach

    def numpy(self):
        return self._array

    def __getitem__(self, key):
        return Tensor(self._array[key])


class Interrupted(Exception):
    """comfy.model_management.InterruptProcessingException."""


class Comfy:
    """The modules, and what they have seen."""

    def __init__(self, folders):
        self.folders = folders          # kind of model -> list of folders
        self.interrupt = False
        self.seen = []                  # (value, total, preview) of progress bars

    def modules(self):
        host, m = self, {}
        for name in ("comfy", "comfy.utils", "comfy.model_management", "folder_paths"):
            m[name] = types.ModuleType(name)

        class ProgressBar:
            def __init__(self, total, node_id=None):
                self.total = total

            def update_absolute(self, value, total=None, preview=None):
                self.total = self.total if total is None else total
                host.seen.append((value, self.total, preview))

        def throw():
            if host.interrupt:
                host.interrupt = False
                raise Interrupted()

        def files(kind):
            return sorted(p.relative_to(top).as_posix() for top in map(pathlib.Path, self.of(kind))
                          for p in top.rglob("*") if p.is_file())

        def full_path(kind, name):
            found = [p for top in self.of(kind) if (p := pathlib.Path(top, name)).is_file()]
            return str(found[0]) if found else None
        m["comfy.utils"].ProgressBar = ProgressBar
        m["comfy.model_management"].InterruptProcessingException = Interrupted
        m["comfy.model_management"].throw_exception_if_processing_interrupted = throw
        m["comfy.model_management"].processing_interrupted = lambda: host.interrupt
        m["comfy"].utils = m["comfy.utils"]
        m["comfy"].model_management = m["comfy.model_management"]
        m["folder_paths"].get_folder_paths = self.of
        m["folder_paths"].get_filename_list = files
        m["folder_paths"].get_full_path = full_path
        if importlib.util.find_spec("torch") is None:
            m["torch"] = types.ModuleType("torch")
            m["torch"].Tensor, m["torch"].from_numpy = Tensor, Tensor
        return m

    def of(self, kind):
        return [str(p) for p in self.folders.get(kind, ())]


def load(folder):
    """A folder of nodes as ComfyUI loads it: a module whose name is its path."""
    name = str(folder).replace(".", "_x_")
    spec = importlib.util.spec_from_file_location(name, str(folder / "__init__.py"))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _node(inputs, outputs):
    return type("Node", (), {"INPUT_TYPES": classmethod(lambda cls: inputs),
                             "RETURN_TYPES": outputs, "FUNCTION": "run"})


def comfy_nodes(files=("example.png",)):
    """Nodes of ComfyUI by the inputs and outputs that they have there."""
    return {
        "LoadImage": _node({"required": {"image": (list(files), {})}}, ("IMAGE", "MASK")),
        "SaveImage": _node({"required": {"images": ("IMAGE",), "filename_prefix": (
            "STRING", {"default": "ComfyUI"})}}, ()),
        "CreateVideo": _node({"required": {"images": ("IMAGE",), "fps": (
            "FLOAT", {"default": 30.0, "min": 1.0, "max": 120.0})},
            "optional": {"audio": ("AUDIO",)}}, ("VIDEO",)),
        "SaveVideo": _node({"required": {
            "video": ("VIDEO",), "filename_prefix": ("STRING", {"default": "video/ComfyUI"}),
            "format": (["auto", "mp4"], {}), "codec": (["auto", "h264"], {})}}, ()),
    }


WIDGETS = {"STRING": str, "INT": int, "FLOAT": (int, float), "BOOLEAN": bool}


def _wrong(kind, more, value):
    """What is wrong with the value of a widget, or None."""
    if isinstance(kind, list):
        return None if value in kind else f"{value!r} is none of {kind}"
    if kind not in WIDGETS or not isinstance(value, WIDGETS[kind]):
        return f"{value!r} is no {kind}"
    if value < more.get("min", value) or value > more.get("max", value):
        return f"{value!r} is not from {more.get('min')} to {more.get('max')}"
    return None


def complaints(workflow, classes):
    """What ComfyUI would refuse in a workflow in the API's format."""
    found = []
    for i, node in workflow.items():
        kind = classes.get(node["class_type"])
        if kind is None:
            found.append(f"node {i}: there is no {node['class_type']}")
            continue
        told = kind.INPUT_TYPES()
        types_ = {**told["required"], **told.get("optional", {})}
        found += [f"node {i}: no input {k}" for k in told["required"] if k not in node["inputs"]]
        for name, value in node["inputs"].items():
            if name not in types_:
                found.append(f"node {i} has no input {name}")
                continue
            wanted, more = types_[name][0], types_[name][1] if len(types_[name]) > 1 else {}
            if isinstance(value, list):
                given = classes[workflow[value[0]]["class_type"]].RETURN_TYPES[value[1]]
                wrong = None if given == wanted else f"{given} is no {wanted}"
            else:
                wrong = _wrong(wanted, more, value)
            found += [f"node {i}, {name}: {wrong}"] if wrong else []
        check = getattr(kind, "VALIDATE_INPUTS", None)
        names = check.__code__.co_varnames[1:check.__code__.co_argcount] if check else ()
        said = check(**{n: node["inputs"][n] for n in names if n in node["inputs"]}) if check \
            else True
        found += [f"node {i}: {said}"] if said is not True else []
    return found


def run(workflow, classes):
    """The outputs of every node of a workflow, by its number."""
    made = {}

    def outputs(i):
        if i not in made:
            node, kind = workflow[i], classes[workflow[i]["class_type"]]
            given = {k: outputs(v[0])[v[1]] if isinstance(v, list) else v
                     for k, v in node["inputs"].items()}
            made[i] = getattr(kind(), kind.FUNCTION)(**given) if hasattr(kind, kind.FUNCTION) \
                else given
        return made[i]
    for i in workflow:
        outputs(i)
    return made


def array(tensor):
    return np.asarray(tensor.detach().cpu().numpy())
