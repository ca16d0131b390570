"""The methods of xDiT's class xFuserModelRunner on a Pipeline.

The program xdit translates the configuration (xdit from-xdit --json), so that the command line and
this class have the same table of xDiT's flags and models.
"""
from __future__ import annotations

import csv
import json
import os
import pathlib
import shutil
import subprocess
import time
from typing import Any

from ._errors import InvalidRequest
from ._library import lib, options, text
from ._pipeline import Output, Pipeline

_OWN = ("prompt", "negative_prompt", "input_images")    # need no translation
_FILES = ("transformer", "transformer_2")
_CALLED = ("prompts", "output", "nproc")            # not options of the library's requests
_OFFLOADS = {"enable_sequential_cpu_offload": "stream", "enable_model_cpu_offload": "auto"}


def _program() -> str:
    """Returns the program xdit: $XDIT_PROGRAM, or the one of the PATH."""
    found = os.environ.get("XDIT_PROGRAM") or shutil.which("xdit")
    if not found:
        raise InvalidRequest("there is no program xdit, which translates the configurations of "
                             "xDiT's runner: install it, or set XDIT_PROGRAM to its file")
    return found


def _translate(config: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Returns the words of the command of xdit, and the notes."""
    words = []
    for name, value in config.items():
        if value is None or value is False or name in _OWN:
            continue
        if isinstance(value, (list, tuple)) and len(value) != 1:
            words += [f"--{name}", *map(str, value)]
        else:
            value = value[0] if isinstance(value, (list, tuple)) else value
            words.append(f"--{name}" if value is True else f"--{name}={value}")
    run = subprocess.run([_program(), "from-xdit", "--json", "--", "xdit", *words],
                         capture_output=True, text=True)
    try:
        made = json.loads(run.stdout)
    except ValueError:
        raise InvalidRequest(run.stderr.strip().removeprefix("xdit: ") or
                             f"{_program()} is not the program of this package") from None
    if made["refusal"] or made["error"]:
        raise InvalidRequest(made["refusal"] or made["error"])
    return made["command"], made["notes"]


def _number(option: Any, value: str) -> Any:
    kinds = {lib.XD_OPT_INT: int, lib.XD_OPT_INT64: int, lib.XD_OPT_REAL: float}
    return kinds.get(option.kind, str)(value)


def _arguments(words: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Converts the words of a command to arguments of Pipeline.from_pretrained and of a call."""
    request, degrees = options("xd_request_options"), options("xd_parallel_options")
    opened: dict[str, Any] = {"files": {}}
    called: dict[str, Any] = {}
    rest = words[words.index("generate") + 1:]
    while rest:
        name = rest.pop(0)[2:]
        option = request.get(name) or degrees.get(name)
        alone = not rest or rest[0].startswith("--")
        to = called if name in request or name in _CALLED else opened
        if name in _OFFLOADS:
            opened["offload"] = _OFFLOADS[name]
        elif option is not None and option.kind == lib.XD_OPT_FLAG:
            to[name] = True
        elif name in _FILES:
            opened["files"][name] = rest.pop(0)
        else:
            value = text(option.arg) if option is not None and alone else rest.pop(0)
            to[name] = value if option is None else _number(option, value)
    if "seed" in called:
        called["seed"] = int(called["seed"])
    return opened, called


class Runner:
    """Runs a model by a configuration of xDiT's runner: a dict of its options, such as
    {"model": "FLUX.1-dev", "ulysses_degree": 2}. The names of the methods are those of xDiT's
    class xFuserModelRunner."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = dict(config)
        self.pipe: Pipeline | None = None
        words, self.notes = _translate(self.config)
        self._opened, _ = _arguments(words)

    @property
    def is_initialized(self) -> bool:
        return self.pipe is not None

    def preprocess_args(self, input_args: dict[str, Any]) -> dict[str, Any]:
        """Returns a copy with the default values of the model in xDiT."""
        args = dict(input_args)
        _, called = self._call(args)
        for name in ("num_inference_steps", "guidance_scale", "height", "width", "num_frames",
                     "max_sequence_length", "seed"):
            if args.get(name) is None and name in called:
                args[name] = called[name]
        return args

    def initialize(self, input_args: dict[str, Any] | None = None) -> None:
        """Opens the model."""
        if self.pipe is None:
            self.pipe = Pipeline.from_pretrained(**self._opened)

    def run(self, input_args: dict[str, Any]) -> tuple[Output, list[float]]:
        """Generates `num_iterations` times after `warmup_calls` calls. Returns the last output, and
        the seconds of each iteration. Ranks above 0 have an empty output."""
        if self.pipe is None:
            raise InvalidRequest("the runner is not initialized: call initialize() before run()")
        prompts, called = self._call(input_args)
        timings, out = [], Output()
        warmup = int(self.config.get("warmup_calls") or 0)
        for i in range(warmup + int(self.config.get("num_iterations") or 1)):
            start = time.perf_counter()
            out = self.pipe(prompts, **called)
            timings += [time.perf_counter() - start] if i >= warmup else []
        return out, timings

    def profile(self, input_args: dict[str, Any]) -> tuple[Output, list[float], pathlib.Path]:
        """Runs once and records a trace. Returns the output, the seconds, and the trace's file."""
        path = self._directory() / "profile_trace.json"
        self.cleanup()
        self.pipe = Pipeline.from_pretrained(**self._opened, trace=path)
        out, timings = self.run(input_args)
        self.cleanup()
        self.initialize()
        return out, timings, path

    def save(self, output: Output | None = None, timings: list[float] | None = None,
             profile: Any = None, save_once: bool = True) -> list[pathlib.Path]:
        """Writes images or videos, and the seconds, into output_directory, on rank 0. A profile has
        its file already. Returns the files."""
        files, folder = [], self._directory()
        count = len(output._results) if output else 0
        for i in range(count):
            kind = "mp4" if output.frames is not None else "png"
            files.append(folder / (f"output_{i}.{kind}" if count > 1 else f"output.{kind}"))
            output.save(files[-1], i)
        if timings and (self.pipe is None or self.pipe.rank == 0):
            files.append(folder / "timings.json")
            files[-1].write_text(json.dumps(timings, indent=2))
        return files + ([pathlib.Path(profile)] if profile else [])

    def print_args(self, args: dict[str, Any]) -> None:
        for name, value in args.items():
            print(f"{name}: {value}")

    def cleanup(self) -> None:
        """Closes the model."""
        if self.pipe is not None:
            self.pipe.close()
        self.pipe = None

    def _directory(self) -> pathlib.Path:
        return pathlib.Path(self.config.get("output_directory") or ".")

    def _call(self, input_args: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
        """Returns the prompts and the other arguments of a call of the pipeline."""
        args = {**self.config, **input_args}
        _, called = _arguments(_translate(args)[0])
        prompt, negative, images = (args.get(name) for name in _OWN)
        prompts = [prompt] if isinstance(prompt, str) else list(prompt or [])
        if "prompts" in called:
            with open(called.pop("prompts"), newline="", encoding="utf-8") as file:
                prompts += [row["prompt"] for row in csv.DictReader(file)]
        if isinstance(negative, (list, tuple)) and len(negative) == 1:
            negative = negative[0]
        if negative is not None:
            called["negative_prompt"] = negative
        if images:
            called["image"] = images
        for name in _CALLED:
            called.pop(name, None)
        return prompts, called
