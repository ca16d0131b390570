/* family.c - describes MiniMax-H3 */
#include "families/family.h"

extern const xd_dit xd_dit_minimaxh3;

static const xd_xdit_model xdit_models[] = {
    { .title = "MiniMax-H3",
      .names = "MiniMax-H3 FastH3",
      .pipeline = "MiniMaxH3",
      .instead = "only its transformer is built",
      .cell = 16,
      .patch = 1,
      .can = XD_CAN_SP | XD_CAN_VAE | XD_CAN_FSDP | XD_HAS_VIDEO },
    { .title = NULL },
};

static const xd_xdit_name xdit_names[] = {
    { "MiniMax-H3", "MiniMaxAI/MiniMax-H3" },
    { "FastH3", "FastVideo/FastVideo-FastH3-4-step-Preview-v1-VSA-DataFree" },
    { .name = NULL },
};

static const xd_xdit_rows xdit_rows = { .models = xdit_models, .names = xdit_names };

extern const xd_family xd_family_minimaxh3;

const xd_family xd_family_minimaxh3 = {
    .title = "MiniMax-H3",
    .dits = XD_LIST(xd_dit, &xd_dit_minimaxh3),
    .recipes = (const xd_recipe *const[]){ NULL },
    .xdit = &xdit_rows,
};
