/* request_key.h - handles the header Idempotency-Key: a client that repeats a request with the same
 * key gets the result of the first request, from any server that uses the same --results.
 *
 * The id of the task is a hash of the key, so that all servers know the task by its key. */
#ifndef XD_SERVE_REQUEST_KEY_H
#define XD_SERVE_REQUEST_KEY_H

#include "serve/task.h"

enum { XD_KEY_BYTES = 255 }; /* maximum length of a key */

/* Returns 1 if the header's value is a valid key: 1 to XD_KEY_BYTES printable ASCII characters. */
int       xd_request_key_is_valid(const char *key);
/* Writes the id of the task to `id`. kind: "image" or "video"; owner: hash of the API key, because
 * clients with different API keys may use the same key. */
void      xd_request_key_id(const char *kind, const char *owner, const char *key, char id[40]);
/* Writes the hash of a request to task->fingerprint: the hash of the task's arguments, with the
 * contents of image files in place of their paths. */
xd_status xd_request_key_fingerprint(xd_task *task, xd_err *e);

#endif
