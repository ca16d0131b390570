/* inspect_uses.h - output and possible inputs of a model */
#ifndef XD_REPORT_INSPECT_USES_H
#define XD_REPORT_INSPECT_USES_H

#include "base/json.h"
#include "model/model.h"

/* Appends members of a JSON object for an opened model: "makes": "image" or "video"; "takes": the
 * fields of xd_request for images and mask, and "strength"; "needs": the required fields of these;
 * "images": maximum number of images; "multiple": pixels of which each side is a multiple;
 * "defaults" of a request. */
void xd_inspect_uses(xd_text_buf *b, const xd_model *m);

#endif
