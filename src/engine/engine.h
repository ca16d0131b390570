/* engine.h - defines xd_engine, the state of an engine of the public API (xdit.h). */
#ifndef XD_ENGINE_ENGINE_H
#define XD_ENGINE_ENGINE_H

#include "base/cancel.h"
#include "base/log.h"
#include "pipeline/context.h"
#include "pipeline/enlarger.h"
#include "predict/auto_plan.h"
#include "xdit/tools.h"

/* How the tokens of an image are divided among ranks: evenly, by the ranks' speeds as measured when
 * the engine is opened, or also by speeds that are measured between steps. */
typedef enum xd_shares { XD_SHARES_EVEN, XD_SHARES_MEASURED, XD_SHARES_ADAPTIVE } xd_shares;

struct xd_engine {
    xd_context           ctx;
    /* caches of this engine; unused if another engine owns the weights */
    xd_engine_caches     caches;
    xd_predicted_times   predicted;
    int                  requests; /* number of requests that were begun */
    int                  refused;  /* 1: the last request needed too much memory and was refused */
    /* engine that owns the weights (borrow.h); NULL: this engine owns them */
    struct xd_engine    *of;
    /* sets of LoRA files (lora_sets.h); NULL: the engine has only one set */
    struct xd_lora_sets *sets;
    /* 1: the engine uses only this rank, with weights of another engine */
    int                  alone;
    /* how the tokens of an image are divided among ranks (xd_shares) */
    int                  balanced;
    xd_enlarger          enlarger; /* upscaler of results; ctx.enlarger tells if it is open */
    xd_canceller         cancel;   /* set by xd_cancel, from any thread */
    xd_logger log; /* logger of the thread that currently runs a function of this engine */
};

/* Options for opening an engine. XD_WITH_FILES: the weights are read from the model's files;
 * without this option the weights are random. XD_ALONE: only this rank works, even if other ranks
 * were launched. XD_FOR_BENCH: the engine is for a benchmark, so the content of the image does not
 * matter. XD_SIZES: in place of a device, opens a stand-in that computes nothing and only returns
 * memory sizes (xd_dev_open_sizes). */
enum { XD_WITH_FILES = 1, XD_ALONE = 2, XD_FOR_BENCH = 4, XD_SIZES = 8 };
xd_status xd_open_with(xd_engine **g, const xd_open_args *a, int how, xd_err *e);

#endif
