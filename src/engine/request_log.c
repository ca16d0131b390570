/* request_log.c - writes the log line that describes an accepted request; see request_log.h */
#include "engine/request_log.h"

#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "pipeline/dtypes.h"
#include "pipeline/transformers.h"

/* Appends the size of the output: "3 images of 1024 x 1024", "81 frames of 832 x 480". */
static void add_size(xd_text_buf *b, const xd_job *j)
{
    if (j->ntodo > 1)
        xd_buf_add(b, "%d %s of ", j->ntodo, j->fps > 0 ? "videos" : "images");
    if (j->fps > 0)
        xd_buf_add(b, "%lld frames of ", (long long)j->frames);
    int steps = j->small ? j->all_steps : j->samp.steps;
    xd_buf_add(b, "%lld x %lld, %d step%s", (long long)j->asked[1], (long long)j->asked[0], steps,
               steps == 1 ? "" : "s");
}

/* Appends the data types and the device, as in "bf16, weights int8, on cpu-amx". */
static void add_types(xd_text_buf *b, const xd_job *j)
{
    const char *type = xd_dtype_name(j->ctx->type);
    const char *weights = xd_types_name(xd_transformer_of(j, 0), j->ctx->type);
    xd_buf_add(b, ", %s", type);
    if (strcmp(type, weights) != 0)
        xd_buf_add(b, " with %s weights", weights);
    xd_buf_add(b, " on %s", j->ctx->dev->name);
}

/* Appends the number of ranks and the name of the plan. The name is left out if it was logged when
 * the plan was chosen. */
static void add_ranks(xd_text_buf *b, const xd_job *j, const xd_predicted_times *predicted)
{
    int ranks = j->ctx->world.used->size;
    if (ranks == 1)
        return;
    xd_buf_add(b, ", %d ranks", ranks);
    if (!predicted || !predicted->logged)
        xd_buf_add(b, " (%s)", j->ctx->plan.text);
}

void xd_log_request(const xd_job *j, const xd_memory_limits *limits,
                    const xd_predicted_times *predicted)
{
    xd_text_buf b = { 0 }, name = { 0 };
    if (j->ctx->world.all->rank)
        return;
    xd_model_short_name(j->ctx->model.dir, &name);
    /* prints the scheduler's name without JSON quotes */
    if (name.p && !name.failed && name.len > 2)
        xd_buf_add(&b, "%.*s (%s): ", (int)name.len - 2, name.p + 1, j->ctx->model.recipe->name);
    add_size(&b, j);
    add_types(&b, j);
    add_ranks(&b, j, predicted);
    if (limits->needed > 0)
        xd_buf_add(&b, ", %s of memory", xd_size_text(limits->needed).s);
    if (predicted && predicted->total_s >= 0 && !predicted->logged)
        xd_buf_add(&b, predicted->total_s < 600 ? ", predicted %.3g s" : ", predicted %.0f s",
                   predicted->total_s);
    if (b.p && !b.failed)
        xd_log(XD_LOG_INFO, "%s", b.p);
    xd_buf_free(&name);
    xd_buf_free(&b);
}
