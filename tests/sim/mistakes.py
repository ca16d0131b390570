#!/usr/bin/env python3
"""mistakes.py SCRATCH [NUMBER ...] - shows that tests on the simulated GPU find mistakes.

A copy of the tree is built in SCRATCH, without nvcc. The mistakes are made there one at a time, and
the test that is named beside each runs; it has to pass without one. CC and CXX are heeded.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CUDA = "src/backend/cuda/"
ATTENTION, CONV = CUDA + "kernels/attention.cu", CUDA + "kernels/conv.cu"
NORM, HEADS = CUDA + "kernels/norm.cu", CUDA + "kernels/qknorm.cu"
JOINED = CUDA + "attention_cudnn.c"
QUANTIZE, GROUPS = CUDA + "kernels/quantize.cu", CUDA + "kernels/groupnorm.cu"
COPIES, MEMORY = CUDA + "kernels/copies.cu", CUDA + "memory.c"
STEPS, RANKS = "tests/golden/test_steps_cuda", "tests/parity/test_device"
STAGING, DIRECT = "src/comm/staging.c", "src/comm/direct.c"
LINKED, LINKS = "src/comm/linked.c", CUDA + "links.c"
WAYS = ("staged", "ipc", "nccl")        # of the messages of two ranks
PROGRAMS = {"ops": "tests/ops/ops_cuda", "convs": "tests/ops/ops_cuda",
            "attn": "tests/ops/ops_attn_cuda", "steps": STEPS, **{way: RANKS for way in WAYS}}
ARGUMENTS = {"steps": ["tests/golden/full"]}    # in the folder of the build
FILES = ["tests/golden/full.stamp"]
MOST_S = 900            # of a test: one that does not end shows nothing, and is no mistake found
LIBRARIES = ["tests/sim/libcuda.so.1", "tests/sim/libcublasLt.so.13", "tests/sim/libcudnn.so.9",
             "tests/sim/libnccl.so.2", "tests/sim/xdit_kernels.so"]

# What is wrong, the file, what stands there, what the mistake makes of it, and the test.
MISTAKES = [
    ("tiles are read before all warps' copies are there", ATTENTION,
     "gpu_cp_wait<1>();\n            gpu_sync();", "gpu_cp_wait<1>();", "attn"),
    ("a tile is not awaited", ATTENTION, "gpu_cp_wait<1>();", "gpu_cp_wait<2>();", "attn"),
    ("a tile is overwritten while a warp reads it", ATTENTION,
     "sm + (2 + now) * TILE);\n            gpu_sync();", "sm + (2 + now) * TILE);", "attn"),
    ("the queries are not awaited", ATTENTION, "    gpu_cp_wait<0>();\n", "", "attn"),
    ("a wrong fragment of keys", ATTENTION, "gpu_mma<f16>(s[m][2 * i + 1], qf[m], kf + 2)",
     "gpu_mma<f16>(s[m][2 * i + 1], qf[m], kf + 1)", "attn"),
    ("values are not transposed", ATTENTION, "gpu_ldmatrix4_t(vf,", "gpu_ldmatrix4(vf,", "attn"),
    ("the sum is not rescaled when the maximum grows", ATTENTION,
     "*sum = *sum * shrink + add", "*sum = *sum + add", "attn"),
    ("values are rescaled when the maximum stays alone", ATTENTION, "if (shrink != 1)",
     "if (shrink == 1)", "attn"),
    ("a tile of two segments is read from the first", ATTENTION, "if (from + KEYS <= p->end) {",
     "if (from < p->end) {", "attn"),
    ("the second segment of a tile begins at its first row", ATTENTION, "            lo = hi;\n",
     "", "attn"),
    ("32 queries have the masks of 16", ATTENTION, "range_of(a, row + 8 * m,",
     "range_of(a, row + 8 * (m % 2),", "attn"),
    ("a bias is not brought to base two", ATTENTION, "[(j0 + j) * a.s_bias[2]] * two",
     "[(j0 + j) * a.s_bias[2]]", "attn"),
    ("rows of a bias are read from the block's first", ATTENTION, "(row + 8 * m) * a.s_bias[1]",
     "row * a.s_bias[1]", "attn"),
    ("a tile that the last query sees whole has no masks", ATTENTION, "j0 + (int)KEYS <= to)",
     "j0 < to)", "attn"),
    ("the causal mask hides the query's own key", ATTENTION, "        *hi = i + 1;",
     "        *hi = i;", "attn"),
    ("the log-sum-exp stays in base two", ATTENTION, " * 0.6931471805599453f", "", "attn"),
    ("f16 is multiplied as bf16", CUDA + "kernels/gpu.cuh", "is_f16 ? gpu_mma_f16 :",
     "!is_f16 ? gpu_mma_f16 :", "attn"),
    ("keys overwrite the queries of wide heads", ATTENTION, "HELD ? 0 : QUERIES * ROW", "0",
     "attn"),
    ("wide heads read one step's queries for all", ATTENTION,
     "gpu_ldmatrix4(qf[m], q + m * 16 * ROW + k * 16)", "gpu_ldmatrix4(qf[m], q + m * 16 * ROW)",
     "attn"),
    ("a warp's sum of exponentials is not awaited", CUDA + "kernels/softmax.cu",
     "shared[SOFTMAX_WARPS + WARP] = sum;\n    gpu_sync();",
     "shared[SOFTMAX_WARPS + WARP] = sum;", "attn"),
    ("flash forgets segments beyond those of the arguments", ATTENTION,
     "segments_of(a)[++p->s]", "a.segment[++p->s]", "ops"),
    ("attention_any forgets segments beyond those of the arguments", ATTENTION,
     "&g = segments_of(a)[segment_of(a, j)]", "&g = a.segment[segment_of(a, j)]", "ops"),
    ("every launch has the lengths of the first samples", CUDA + "attention.c",
     "a->kv_len[p->sample + i]", "a->kv_len[i]", "ops"),
    ("heads and rows change places for cuDNN", CUDA + "cudnn_plan.c", "{ s[0], s[2], s[1], 1 }",
     "{ s[0], s[1], s[2], 1 }", "attn"),
    ("keys are joined where values are wanted", JOINED, "gather(c, a, 1, &keys->v)",
     "gather(c, a, 0, &keys->v)", "attn"),
    ("all samples have as many keys as the first", JOINED, "xd_min(a->kv_len[i], m)",
     "xd_min(a->kv_len[0], m)", "attn"),
    ("each piece of the queries writes the sums of the first rows", JOINED,
     "a->lse.p + row * a->lse.s[1];", "a->lse.p + 0 * row;", "attn"),
    ("plans of as many queries and keys are one", CUDA + "cudnn_plans.c",
     "shape, sizeof *shape) == 0", "shape, 24) == 0", "attn"),
    ("a convolution of cuDNN has the zeros before an axis behind it", CUDA + "cudnn_plan.c",
     "lo[i] = a->lo[j], hi[i] = a->hi[j]", "hi[i] = a->lo[j], lo[i] = a->hi[j]", "convs"),
    ("residuals of cuDNN's convolutions are read with the strides of results",
     CUDA + "cudnn_plan.c", "ID_RESIDUAL, a->out, a->s_residual", "ID_RESIDUAL, a->out, a->s_out",
     "convs"),
    ("cuDNN reads a bias of 16 bits as f32", CUDA + "conv.c",
     "!a->bias.p ? 0 : a->bias.type == XD_F32 ? 1 : 2;", "a->bias.p != NULL;", "convs"),
    ("sums beyond f16 become infinities", CUDA + "kernels/elements.cuh",
     "gpu_to_f16(within_f16(v))", "gpu_to_f16(v)", "ops"),
    ("a wrong fragment of weights", CONV, "fb[j / 2] + j % 2 * 2", "fb[j / 2] + j % 2", "ops"),
    ("a convolution's right edge is off by one", CONV, "w < a.Win;", "w <= a.Win;", "ops"),
    ("a stage of a convolution is not awaited", CONV, "gpu_cp_wait<STAGES - 2>();",
     "gpu_cp_wait<STAGES - 1>();", "ops"),
    ("sums overwrite a stage that a warp still reads", CONV,
     "    gpu_sync();\n    ROLLED", "    ROLLED", "ops"),
    ("the last rows of a convolution have no block", CUDA + "conv.c", "xd_ceil_div(rows, 128)",
     "rows / 128", "ops"),
    ("a convolution has one stage of shared memory too few", CUDA + "cuda.h", "(3 * 256 * 40 * 2)",
     "(2 * 256 * 40 * 2)", "ops"),
    ("shift is read with the stride of scale", NORM, "row * a.s_shift + c, 0",
     "row * a.s_scale + c, 0", "ops"),
    ("a norm's e4m3 are not rounded to the compute type before", NORM,
     "x[k][i] = rounded_to(y[i], a.via);", "x[k][i] = y[i];", "ops"),
    ("a norm's scales are those of one row", NORM, "a.sx[row] = scale;\n}", "a.sx[0] = scale;\n}",
     "ops"),
    ("a row's warps do not await each other's largest magnitude", QUANTIZE,
     "        shared[WARP] = most;\n    gpu_sync();", "        shared[WARP] = most;", "ops"),
    ("what a norm adds is not kept", NORM,
     "store_eight(a.sum, row * a.s_in + k * WARPS * 256 + lane, F32, x[k]);", "(void)row;", "ops"),
    ("warps of a wide row do not await each other's sums", NORM,
     "        shared[WARP] = v;\n    gpu_sync();", "        shared[WARP] = v;", "ops"),
    ("sums of a wide row overwrite those before them", NORM,
     "(float *)gpu_shared() + turn * WARPS;", "(float *)gpu_shared() + 0 * turn;", "ops"),
    ("a wide row has the sum of its first warp", NORM, "w = 1; w < WARPS; w++)\n        v = MAX",
     "w = 1; w < 1; w++)\n        v = MAX", "ops"),
    ("what is added is read with the stride of the sums", NORM,
     "load_eight(v, a.add, row * a.s_add + c", "load_eight(v, a.add, row * a.s_in + c", "ops"),
    ("all rows are added with the gate of the first", CUDA + "norm.c",
     "b.s_gate = xd_cuda_row_stride(&a->gate, n);", "b.s_gate = 0;", "ops"),
    ("keys are normed with the gains of queries", HEADS, "load_eight(g, h.gain + j",
     "load_eight(g, a.of[0].gain + j", "ops"),
    ("a warp takes the heads of the first slice alone", HEADS, "first = slice * (128 / LANES)",
     "first = 0", "ops"),
    ("heads turn the other way", HEADS, "x[0] = u * c - v * s;", "x[0] = u * c + v * s;", "ops"),
    ("codes have three bytes of their scale", QUANTIZE, "if (LANE < 4)\n        to[a.D",
     "if (LANE < 3)\n        to[a.D", "ops"),
    ("codes of heads lie where values do", QUANTIZE, "row * a.s_out0 + head * a.s_out1;\n    float",
     "row * a.s_in0 + head * a.s_in1;\n    float", "ops"),
    ("int8 codes have no sign", QUANTIZE, "(float)(int8_t)from[c]", "(float)from[c]", "ops"),
    ("a gated activation's rows are quantized without their factors", QUANTIZE,
     "activate(x[i], a.act) * w[i];", "activate(x[i], a.act);", "ops"),
    ("int8 is scaled by 128", QUANTIZE, "448.0f : 127.0f", "448.0f : 128.0f", "ops"),
    ("a bias of bf16 is read as f32", CUDA + "kernels/elementwise.cu",
     "load_eight(b, a.bias, c, a.bias_type)", "load_eight(b, a.bias, c, 0)", "ops"),
    ("scales of rows and of columns change places", CUDA + "cublaslt.c",
     "{ XD_LT_DESC_SCALE_POINTER_A, p->sw },", "{ XD_LT_DESC_SCALE_POINTER_A, p->sx },", "ops"),
    ("the first bias of a kind of product serves all", CUDA + "cublaslt.c",
     "    cublasStatus_t r = set_pointers(c->lt, q, p);", "    cublasStatus_t r = XD_LT_SUCCESS;",
     "ops"),
    ("products of other strides are one kind", CUDA + "cublaslt.c", "    k.s_w = p->s_w;\n", "",
     "ops"),
    ("NaN is lost on the way to int8", CUDA + "kernels/elements.cuh",
     "return m <= 3.4028234663852886e38f ? m : INFINITY;", "return m;", "ops"),
    ("a block's sums are added before they are there", GROUPS,
     "= q;\n    gpu_sync();", "= q;", "ops"),
    ("sums of eight channels are added before they are there", GROUPS,
     "= q[k];\n    gpu_sync();", "= q[k];", "ops"),
    ("a slab's groups all have the first one's sums", GROUPS, "int c = i / 2 * wide;", "int c = 0;",
     "ops"),
    ("sums of rows leave out all beyond 128", GROUPS, "for (int64_t r = me; r < a.R; r += 128)",
     "for (int64_t r = me; r < 128 && r < a.R; r += 128)", "ops"),
    ("a group's mean is read before it is there", GROUPS,
     "    gpu_sync();\n    const int64_t begin", "    const int64_t begin", "ops"),
    ("the next tap of a convolution begins behind its channels", CONV, "c0 = 0, tap++;", "tap++;",
     "ops"),
    ("rows of a gate are read with the stride of others", CUDA + "kernels/elementwise.cu",
     "load_eight(w, a.b, r * a.s_b + c", "load_eight(w, a.b, r * a.s_a + c", "ops"),
    ("the id behind a table passes", COPIES, "id >= a.rows", "id > a.rows", "ops"),
    ("a pinned buffer is filled while it is copied", MEMORY,
     "r = c->cu->cuEventSynchronize((*b)->done);", "r = XD_CU_SUCCESS;", "ops"),
    ("the host does not wait for what it reads", MEMORY,
     "    r = cu->cuEventSynchronize(stage[turn & 1]->done);", "    r = 0;", "ops"),
    ("a copy from pageable memory", MEMORY, "(to, b->p, bytes, c->stream)",
     "(to, memcpy(malloc(bytes), b->p, bytes), bytes, c->stream)", "ops"),
    ("the host writes the device's memory", MEMORY,
     "    return !bytes ? XD_OK\n", "    memset(p, value, bytes);\n    return !bytes ? XD_OK\n",
     "ops"),
    ("kernels are launched on the default stream", CUDA + "launch.c",
     "(unsigned)shared, c->stream, list,", "(unsigned)shared, NULL, list,", "ops"),
    ("positions are uploaded in every step", "src/pipeline/denoise.c",
     "        f->x.tables = &f->tables;\n", "", "steps"),
    ("streams share the driver's 8 queues", CUDA + "load.c",
     "    setenv(\"CUDA_DEVICE_MAX_CONNECTIONS\", \"32\", 0);\n", "", "steps"),
    ("the end of an op has no event", "src/observe/stamps.c",
     "begin >= 0 ? s->dev->mem->stamp(s->dev, NULL) : -1;", "begin;", "steps"),
    ("a graph of one pass is launched for the other", "src/pipeline/replay.c",
     "    return same && memcmp(a->local, b->local, a->local_size) == 0;", "    return 1 || same;",
     "steps"),
    ("the time is captured with the pass", "src/pipeline/denoise.c",
     "    dit->cond(x, f->net, &in, &s);\n",
     "    if (!f->replay.n || f->replay.v[f->replay.n - 1].seen < 3)\n"
     "        dit->cond(x, f->net, &in, &s);\n", "steps"),
    ("a recorded pass is not launched in its own step", "src/pipeline/replay.c",
     "        run_recorded(r, x, v->g);\n        return 1;", "        return 1;", "steps"),
    ("a sampler waits for its latents", "src/pipeline/denoise.c",
     "    j->sampler->step(x, &j->samp, step, free_part",
     "    x->dev->mem->sync(x->dev, x->st);\n    j->sampler->step(x, &j->samp, step, free_part",
     "steps"),
    ("data leaves before it is computed", STAGING, "st = l->follow(d, XD_LANE_OUT, k->before);",
     "st = XD_OK;", "staged"),
    ("a message starts before its data has left", STAGING,
     "return !w->lanes || !k->down.n || w->lanes->reached(w->dev, k->out);", "return w && k;",
     "staged"),
    ("computing does not await what has come", STAGING,
     "st = w->lanes->follow(w->dev, XD_LANE_COMPUTE, k->in);", "st = XD_OK;", "staged"),
    ("host memory of a message is reused too early", STAGING,
     "if (!w->lanes->reached(w->dev, k->last)) {", "if (0) {", "staged"),
    ("a mailbox is read before it is full", DIRECT,
     "xd_status st = l->follow(w->dev, XD_LANE_IN, s->full);", "xd_status st = XD_OK;", "ipc"),
    ("the wrong event is awaited", DIRECT, "l->follow(w->dev, XD_LANE_IN, s->full)",
     "l->follow(w->dev, XD_LANE_IN, s->taken)", "ipc"),
    ("a mailbox is filled while it is read", DIRECT,
     "st = l->follow(d, XD_LANE_COMPUTE, b->taken);", "st = XD_OK;", "ipc"),
    ("a link does not await computing", LINKS,
     "cuStreamWaitEvent(k->stream, xd_cuda_mark_event(behind), 0)",
     "cuCtxSetCurrent(behind ? k->c->context : NULL)", "nccl"),
    ("computing does not await a link", LINKED,
     "w->lanes->follow(w->dev, XD_LANE_COMPUTE, k->in)", "XD_OK", "nccl"),
    ("all ranks send on one link", LINKED, "1 + (nin ? g->rank[peer] : l->rank)", "1", "nccl"),
]


def build(scratch):
    """The output of ninja, or None where it succeeds."""
    run = subprocess.run(["ninja", "-C", scratch / "build", *PROGRAMS.values(), *LIBRARIES,
                          *FILES], stdout=subprocess.PIPE, text=True)
    return run.stdout if run.returncode else None


def failure(scratch, test):
    """The first thing that fails in a test, "" when it does not end, or None. What follows a
    failure is not waited for. No plan of cuDNN is left by an earlier run."""
    shutil.rmtree(scratch / "cache", ignore_errors=True)
    env = dict(os.environ, XDIT_CUDA_DIR=str(scratch / "build/tests/sim"),
               XDG_CACHE_HOME=str(scratch / "cache"),
               CMOCKA_MESSAGE_OUTPUT="TAP", OMP_WAIT_POLICY="passive")
    command = ["stdbuf", "-oL",
               *(scratch / "build" / a for a in [PROGRAMS[test], *ARGUMENTS.get(test, [])])]
    if test == "convs":                 # convolutions by cuDNN
        env.update(XDIT_CUDNN="all", XDIT_TEST_ONLY="test_conv*")
    if test in WAYS:
        env.update(XDIT_DEVICE_MESSAGES=test, XDIT_SIM_DEVICES="2", XDIT_SIM_SEED="3",
                   XDIT_SIM_PATIENCE="20", OMPI_ALLOW_RUN_AS_ROOT="1",
                   OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        launcher = shutil.which("mpirun.openmpi") or "mpirun"
        command = [launcher, "--oversubscribe", "-n", "2", *command[2:],
                   ROOT / "tests/parity/model", "cuda", "24x20", "3", "u2", "r2", "p2m3w1",
                   "r2xw1"]
    run = subprocess.Popen(command, env=env, cwd=scratch / "build", text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")
    late = threading.Timer(MOST_S, run.terminate)
    late.start()
    begin, last, bad = time.time(), "", None
    for line in run.stdout:
        last = line.strip() or last
        bad = re.match(r"not ok \d+ - (.*)$", line)
        if bad:
            run.terminate()
            break
    rc = run.wait()
    late.cancel()
    if bad:
        return bad[1]
    if time.time() - begin >= MOST_S:
        return ""
    return f"exit {rc}: {last[:120]}" if rc else None


def prepare(scratch):
    names = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], stdout=subprocess.PIPE, text=True,
                           check=True).stdout.split("\0")
    for name in filter(None, names):
        to = scratch / name
        to.parent.mkdir(parents=True, exist_ok=True)
        if not to.exists() or to.read_bytes() != (ROOT / name).read_bytes():
            shutil.copyfile(ROOT / name, to)
            shutil.copymode(ROOT / name, to)
    if not (scratch / "build/build.ninja").exists():
        subprocess.run(["meson", "setup", scratch / "build", scratch, "--buildtype=release",
                        "-Dnvcc=none"], check=True, stdout=subprocess.DEVNULL,
                       env=dict(os.environ, CUDA_HOME="/none"))
    said = build(scratch)
    if said:
        sys.exit(said)


def try_one(scratch, number, mistake):
    """1: the mistake was found."""
    what, name, old, new, test = mistake
    path = scratch / name
    right, begin = path.read_text(), time.time()
    if old not in right:
        print(f"not ok {number} - {what}: {name} has no such place")
        return 0
    try:
        path.write_text(right.replace(old, new, 1))
        said = build(scratch)
        bad = None if said else failure(scratch, test)
    finally:
        path.write_text(right)
    if said:
        print(f"not ok {number} - {what}: does not compile\n{said[-2000:]}")
        return 0
    print(f"{'ok' if bad else 'not ok'} {number} - {what}: {PROGRAMS[test]}: "
          f"{'passes' if bad is None else bad or 'does not end'} ({time.time() - begin:.0f} s)",
          flush=True)
    return bool(bad)


def main():
    scratch = pathlib.Path(sys.argv[1]).resolve()
    wanted = [int(a) for a in sys.argv[2:]] or range(1, len(MISTAKES) + 1)
    prepare(scratch)
    found = 0
    for number in wanted:
        found += try_one(scratch, number, MISTAKES[number - 1])
    build(scratch)
    for test in {MISTAKES[number - 1][4] for number in wanted}:
        bad = failure(scratch, test)
        if bad is not None:
            sys.exit(f"without a mistake {PROGRAMS[test]} fails: {bad or 'it does not end'}")
    print(f"{found} of {len(wanted)} mistakes found")
    return found != len(wanted)


if __name__ == "__main__":
    sys.exit(main())
