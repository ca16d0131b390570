#!/usr/bin/env python3
"""The programs that bench/cpu_table.py compares with: one network of a row of torch_step.py in one
of them. cpu_table.py starts this file with the Python of the peer's environment.

    cpu_peers.py ROW PEER --config DIR [--threads N]

It prepares the network (converts, quantizes, compiles), prints a line of JSON, then runs once for
every line on standard input, and prints the seconds of each run.
"""
import argparse
import gc
import json
import logging
import os
import pathlib
import sys
import tempfile
import time
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import torch_step
from torch_step import tensor_of


# ---- the network with tensors as its only inputs -------------------------------------------------

def flat(torch, net, call, inputs):
    """A module whose inputs are the tensors in `inputs`, in order, and which returns one tensor."""
    leaves = []

    def take(v):
        if torch.is_tensor(v):
            leaves.append(v)
            return Leaf(len(leaves) - 1)
        if isinstance(v, dict):
            return {k: take(x) for k, x in v.items()}
        if isinstance(v, (list, tuple)):
            return type(v)(take(x) for x in v)
        return v

    def put(v, tensors):
        if isinstance(v, Leaf):
            return tensors[v]
        if isinstance(v, dict):
            return {k: put(x, tensors) for k, x in v.items()}
        if isinstance(v, (list, tuple)):
            return type(v)(put(x, tensors) for x in v)
        return v

    class Flat(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, *tensors):
            return tensor_of(torch, call(**put(shape, tensors)))

    shape = take(inputs)
    return Flat().eval(), tuple(leaves)


class Leaf(int):
    """The place of a tensor among the inputs."""


# ---- peers ---------------------------------------------------------------------------------------
# Each takes the row and the arguments, and returns a function that runs once and returns a tensor
# or an array.

def opened(row, args, dtype):
    import torch
    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    net, inputs = torch_step.open_net(row, pathlib.Path(args.config), getattr(torch, dtype), torch,
                                      "cpu")
    call = net.decode if row["part"] == "vae" else net
    return torch, net, call, inputs


def torch_eager(row, args):
    torch, _, call, inputs = opened(row, args, "bfloat16")
    return lambda: tensor_of(torch, call(**inputs))


def channels_last(row, args):
    if row["part"] != "vae" or "frames" in row:
        raise Unsuited("channels last is a layout of 2-D convolutions")
    torch, net, call, inputs = opened(row, args, "bfloat16")
    net.to(memory_format=torch.channels_last)
    inputs["z"] = inputs["z"].contiguous(memory_format=torch.channels_last)
    return lambda: tensor_of(torch, call(**inputs))


def torch_compiled(row, args):
    torch, net, call, inputs = opened(row, args, "bfloat16")
    call = torch_step.compiled(net, torch) or call
    return lambda: tensor_of(torch, call(**inputs))


def torchao_int8(row, args):
    """Weights int8 a row, inputs int8 a token; linear layers alone."""
    torch, net, call, inputs = opened(row, args, "bfloat16")
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
    quantize_(net, Int8DynamicActivationInt8WeightConfig())
    call = torch_step.compiled(net, torch) or call
    return lambda: tensor_of(torch, call(**inputs))


def zentorch(row, args):
    torch, net, call, inputs = opened(row, args, "bfloat16")
    import zentorch as _
    fast = torch.compile(call if row["part"] == "vae" else call.forward, backend="zentorch")
    return lambda: tensor_of(torch, fast(**inputs))


def converted(row, args):
    """OpenVINO's model of the network, with f32 weights, and its inputs."""
    import openvino as ov
    torch, net, call, inputs = opened(row, args, "float32")
    module, tensors = flat(torch, net, call, inputs)
    model = ov.convert_model(module, example_input=tensors, verbose=False)
    arrays = [t.numpy() for t in tensors]
    model.reshape({p: ov.PartialShape(a.shape) for p, a in zip(model.inputs, arrays)})
    del module, net, call, inputs
    gc.collect()
    return ov, model, arrays


def openvino_run(args, ov, model, arrays):
    compiled = ov.Core().compile_model(model, "CPU", {
        "INFERENCE_PRECISION_HINT": "bf16", "INFERENCE_NUM_THREADS": args.threads,
        "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"})
    del model
    gc.collect()
    request = compiled.create_infer_request()
    return lambda: request.infer(arrays)[compiled.outputs[0]]


def openvino_bf16(row, args):
    return openvino_run(args, *converted(row, args))


def openvino_int8_weights(row, args):
    import nncf
    ov, model, arrays = converted(row, args)
    return openvino_run(args, ov, nncf.compress_weights(model), arrays)


def openvino_int8(row, args):
    """Weights and inputs int8 (static ranges, one sample: their values do not change the time)."""
    import nncf
    ov, model, arrays = converted(row, args)
    kind = None if row["part"] == "vae" else nncf.ModelType.TRANSFORMER
    model = nncf.quantize(model, nncf.Dataset([arrays]), subset_size=1, model_type=kind)
    return openvino_run(args, ov, model, arrays)


def onnx_int8(row, args):
    """Weights int8, inputs int8 by ranges found in each run; what is not a product is f32."""
    import onnxruntime as ort
    from onnxruntime.quantization import QuantType, quantize_dynamic
    torch, net, call, inputs = opened(row, args, "float32")
    module, tensors = flat(torch, net, call, inputs)
    with tempfile.TemporaryDirectory() as folder:
        plain, small = (os.path.join(folder, n) for n in ("plain.onnx", "int8.onnx"))
        torch.onnx.export(module, tensors, plain, dynamo=True, external_data=True,
                          verbose=False)
        names = [i.name for i in ort.InferenceSession(plain).get_inputs()]
        arrays = [t.numpy() for t in tensors]
        del module, net, call, inputs
        gc.collect()
        quantize_dynamic(plain, small, weight_type=QuantType.QInt8, use_external_data_format=True)
        options = ort.SessionOptions()
        options.intra_op_num_threads = args.threads
        session = ort.InferenceSession(small, options, providers=["CPUExecutionProvider"])
    feed = dict(zip(names, arrays))
    return lambda: session.run(None, feed)[0]


class Unsuited(Exception):
    """The peer does not do this row: said in the table without a fault."""


# name: the function, the precision class, the environment and what the table calls it
PEERS = {
    "torch": dict(run=torch_eager, precision="bf16", env="base", what="PyTorch"),
    "torch-last": dict(run=channels_last, precision="bf16", env="base",
                       what="PyTorch, channels last"),
    "torch-compiled": dict(run=torch_compiled, precision="bf16", env="base",
                           what="PyTorch compiled"),
    "zentorch": dict(run=zentorch, precision="bf16", env="zentorch", what="zentorch"),
    "openvino": dict(run=openvino_bf16, precision="bf16", env="base", what="OpenVINO"),
    "openvino-int8-weights": dict(run=openvino_int8_weights, precision="int8", env="base",
                                  what="OpenVINO, int8 weights"),
    "openvino-int8": dict(run=openvino_int8, precision="int8", env="base", what="OpenVINO int8"),
    "torchao-int8": dict(run=torchao_int8, precision="int8", env="base", what="torchao int8"),
    "onnxruntime-int8": dict(run=onnx_int8, precision="int8", env="base", what="onnxruntime int8"),
}

# What pip installs into each environment. zentorch is built for one version of PyTorch.
ENVIRONMENTS = {
    "base": ["torch", "diffusers", "transformers", "openvino", "nncf", "torchao", "onnx",
             "onnxruntime", "onnxscript"],
    "zentorch": ["torch==2.14.0", "diffusers", "transformers", "zentorch==2.14.0.1"],
}


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("row", choices=torch_step.ROWS)
    p.add_argument("peer", choices=PEERS)
    p.add_argument("--config", required=True, metavar="DIR")
    p.add_argument("--threads", type=int, default=2)
    args = p.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)                   # whatever the packages print is no answer
    answer = lambda **k: print(json.dumps(k), file=out, flush=True)
    try:
        run = PEERS[args.peer]["run"](torch_step.ROWS[args.row], args)
        first = run()               # compilers work in the first run
    except Unsuited as e:
        answer(ready=False, unsuited=str(e))
        return
    except Exception as e:          # pylint: disable=broad-except
        answer(ready=False, failed=f"{type(e).__name__}: {str(e).strip().splitlines()[0][:200]}"
               if str(e).strip() else type(e).__name__)
        return
    import numpy
    import torch
    fine = bool(torch.isfinite(first).all()) if torch.is_tensor(first) else bool(
        numpy.isfinite(first).all())
    answer(ready=True, finite=fine)
    del first
    for _ in sys.stdin:
        t0 = time.perf_counter()
        run()
        answer(seconds=time.perf_counter() - t0)


if __name__ == "__main__":
    main()
