/* engine.h - the engine behind the public API */
#ifndef XD_ENGINE_ENGINE_H
#define XD_ENGINE_ENGINE_H

#include "base/cancel.h"
#include "base/log.h"
#include "pipeline/context.h"
#include "predict/auto_plan.h"
#include "xdit/tools.h"

struct xd_engine {
    xd_context   ctx;
    xd_predicted_times predicted;
    int          requests;      /* that were begun                                             */
    int          refused;       /* the device does not hold the last request; none has begun    */
    struct xd_engine *of;       /* whose weights it computes with (beside.h); NULL: its own      */
    struct xd_lora_sets *sets;  /* of LoRA files (lora_sets.h); NULL: one set alone            */
    int          alone;         /* it is beside `of` and has this rank alone                   */
    int          balanced;      /* shares follow measured speeds                               */
    xd_canceller cancel;        /* set by xd_cancel, from any thread                           */
    xd_logger    log;   /* the logger of the thread that currently runs a function of this engine */
};

/* How an engine is opened: XD_WITH_FILES: with the weights of the files, otherwise random ones;
 * XD_ALONE: this rank works by itself even if others were launched; XD_FOR_BENCH: the content of
 * the result does not matter; XD_SIZES: the device has sizes alone (xd_dev_open_sizes). */
enum { XD_WITH_FILES = 1, XD_ALONE = 2, XD_FOR_BENCH = 4, XD_SIZES = 8 };
xd_status xd_open_with(xd_engine **g, const xd_open_args *a, int how, xd_err *e);

#endif
