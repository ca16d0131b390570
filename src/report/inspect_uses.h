/* inspect_uses.h - describes as JSON what a model generates and which inputs it accepts. */
#ifndef XD_REPORT_INSPECT_USES_H
#define XD_REPORT_INSPECT_USES_H

#include "base/json.h"
#include "model/model.h"

/* Appends members of a JSON object that describe an opened model: "makes": "image" or "video";
 * "takes": which fields of xd_request for images, mask and strength the model accepts; "needs":
 * which of these fields a request must set; "images": maximum number of images; "control_images":
 * number of control images, one for each control network; "multiple": each side of an image is a
 * multiple of this number of pixels; "defaults": default values of a request. */
void xd_inspect_uses(xd_text_buf *b, const xd_model *m);

#endif
