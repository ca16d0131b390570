/* family.c - describes the pipelines of LTX-2 */
#include "families/family.h"

extern const xd_dit xd_dit_ltx2;

extern const xd_family xd_family_ltx2;

const xd_family xd_family_ltx2 = {
    .title = "LTX-2",
    .dits = XD_LIST(xd_dit, &xd_dit_ltx2),
    .recipes = (const xd_recipe *const[]){ NULL },
};
