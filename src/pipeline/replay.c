/* replay.c - decides which passes of a step are recorded on the device and when, and replays the
 * records */
#include "pipeline/replay.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/par.h"

enum { PLAIN = 2 }; /* number of times that a pass runs before it is recorded */

/* Returns 1 if recording passes saves time: if more than half of a step's ops are small, the ops
 * take longer to launch than to compute. The environment variable XDIT_GRAPHS overrides this rule:
 * 0 for never, any other value for always. */
static int replay_pays(const xd_counts *c)
{
    const char *asked = getenv("XDIT_GRAPHS");
    if (asked && *asked)
        return strcmp(asked, "0") != 0;
    return 2 * c->small > c->calls;
}

void xd_replay_open(xd_replay *r, xd_dev *dev, const xd_counts *c)
{
    *r = (xd_replay){ .dev = dev->graphs && replay_pays(c) ? dev : NULL };
}

void xd_replay_close(xd_replay *r)
{
    for (int i = 0; i < r->n; i++) {
        r->dev->graphs->drop(r->dev, r->v[i].g);
        free((void *)(uintptr_t)r->v[i].key.local);
    }
    *r = (xd_replay){ 0 };
}

static int is_same(const xd_replay_key *a, const xd_replay_key *b)
{
    int same = a->pass == b->pass && a->patch == b->patch && a->local_size == b->local_size;
    for (int i = 0; i < XD_REPLAY_ADDRESSES; i++)
        same = same && a->at[i] == b->at[i];
    return same && memcmp(a->local, b->local, a->local_size) == 0;
}

/* Returns the entry of the pass with this key; if there is none, adds an entry. Returns NULL if all
 * entries are in use or memory is short. */
static xd_replayed *find_pass(xd_replay *r, const xd_replay_key *key)
{
    for (int i = 0; i < r->n; i++)
        if (is_same(&r->v[i].key, key))
            return &r->v[i];
    void *local = r->n < XD_REPLAYS ? malloc(key->local_size + 1) : NULL;
    if (!local)
        return NULL;
    memcpy(local, key->local, key->local_size);
    r->v[r->n] = (xd_replayed){ .key = *key };
    r->v[r->n].key.local = local;
    return &r->v[r->n++];
}

static void run_recorded(xd_replay *r, xd_exec *x, xd_graph *g)
{
    xd_par_poke();
    if (x->watch)
        x->watch(x->watcher, x);
    if (!xd_ok(x))
        return;
    if (xd_cancel_check(x->cancel, &x->err) == XD_OK && r->dev->graphs->run(r->dev, g) != XD_OK)
        xd_exec_fail(x, XD_EDEVICE, "a recorded pass failed on %s", x->dev->name);
}

xd_replay_how xd_replay_begin(xd_replay *r, xd_exec *x, const xd_replay_key *key)
{
    xd_replayed *v = r->dev && xd_ok(x) ? find_pass(r, key) : NULL;
    if (!v)
        return XD_RUN;
    if (v->g) {
        run_recorded(r, x, v->g);
        return XD_DONE;
    }
    if (v->seen++ < PLAIN || r->dev->graphs->begin(r->dev) != XD_OK)
        return XD_RUN;
    r->recorded = 1 + (int)(v - r->v);
    r->before = x->err;
    return XD_RECORD;
}

int xd_replay_end(xd_replay *r, xd_exec *x)
{
    xd_replayed *v = &r->v[r->recorded - 1];
    xd_status    s = r->dev->graphs->end(r->dev, &v->g);
    r->recorded = 0;
    if (x->err.code == XD_ECANCELLED)
        return 1;
    if (s == XD_OK && xd_ok(x)) {
        run_recorded(r, x, v->g);
        return 1;
    }
    x->err = r->before;
    xd_replay_close(r);
    xd_log(XD_LOG_DEBUG, "%s cannot record passes: ops are launched one by one", x->dev->name);
    return 0;
}
