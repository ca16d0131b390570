/* inspect_uses.h - what a model makes, and what a request of it may bring */
#ifndef XD_REPORT_INSPECT_USES_H
#define XD_REPORT_INSPECT_USES_H

#include "base/json.h"
#include "model/model.h"

/* Appends members of a JSON object, for an opened model: "makes", "image" or "video"; "takes", the
 * fields of xd_request for images and their mask, and "strength"; "needs", those of them that every
 * request brings; "images", how many it reads at most; "multiple", the pixels of which sides are
 * multiples; "defaults" of a request that gives none. */
void xd_inspect_uses(xd_text_buf *b, const xd_model *m);

#endif
