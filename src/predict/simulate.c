/* simulate.c - simulates how the ranks of a plan run together, from the events that were recorded
 * for each rank.
 *
 * Each rank has a clock, and the rank whose clock is earliest runs next. A rank that waits for a
 * message which is not sent yet is suspended until another rank sends the message. A message queues
 * at three places: at the port of its sender, at the port of its receiver, and at the bus that the
 * ranks of a host share. For messages between hosts, the ports are those of the hosts, otherwise
 * those of the ranks. A message has arrived when it has passed all three places. A rank that
 * computes while a message arrives is slowed down; the machine's description has the fraction of
 * its speed that remains. */
#include "predict/simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum ev_kind {
    EV_SENDS = XD_MESSAGE_SEND,
    EV_RECEIVES = XD_MESSAGE_RECV,
    EV_MEETS = XD_MESSAGE_COLLECTIVE,
    EV_END,
    EV_MARK
} ev_kind;

typedef struct event {
    ev_kind what;
    int     group, peer;
    double  after_s; /* seconds that the rank computes before the event */
    /* number of the message or, for EV_MARK, of the mark; size of the message in bytes */
    int64_t number, bytes;
    int64_t to; /* for EV_MEETS: index in `pool` of the array with the bytes sent to each rank */
} event;

typedef struct team { /* a group of ranks, as recorded by one of its members */
    /* `at` is the index of this group among the groups of all ranks */
    int      color, rank, size, at;
    /* [size]: how many messages this rank has sent to, and received from, each member */
    int64_t *sent, *got;
    int64_t  met;
} team;

typedef struct stretch {
    char   what;
    double from, to;
} stretch;
/* A message of a rank; `busy` is the rank's computing time, in seconds, before the message. */
typedef struct open_message {
    int     group, peer;
    ev_kind what;
    int64_t seq;
    double  gone, busy;
    int     begun; /* all members before this index have begun the message */
} open_message;

typedef struct record {
    event        *ev;
    int64_t       nev, cap, next;
    team         *team;
    int           nteam;
    int64_t      *pool, npool, poolcap;
    open_message *message; /* [messages + 1], where the index is the number of the message */
    int64_t       nmessage;
    /* the rank that this rank waits for, because that rank has not begun a message */
    int           for_whom;
    /* time of the rank's clock; computing time that already counts as slowed down, both in
     * seconds */
    double        t, slowed;
    double       *mark; /* [nmark]: times at which the rank reached the marks, in seconds */
    int           nmark;
    stretch      *stretches;
    int64_t       nstretches, stretch_cap;
    stretch      *flights; /* one per message to this rank: from its sending to its arrival */
    int64_t       nflights, flight_cap;
    xd_lane       lane;
} record;

typedef struct news { double start, takes, arrival, lost; } news; /* times of a message */
/* A slot of the hash table of messages; an empty slot has key 0. */
typedef struct slot {
    uint64_t key;
    news     n;
} slot;

struct xd_simulation {
    const xd_machine *m;
    int         n, now; /* number of ranks; index of the rank whose events are being recorded */
    record     *s;
    xd_recorder rec;
    double      (*seconds)(void *ctx);
    void       *ctx;
    int         failed; /* 1: memory was too short for a record or a message */
    slot       *map;
    int64_t     cap, used;
    int        *member; /* [nteams][n]: the members of each group, as indices among all ranks */
    int         nteams;
    /* Times at which the ports for sending (out) and for receiving (in) become free: first those of
     * the n ranks, then those of the hosts. `bus` has the times at which the bus of each host
     * becomes free. */
    double     *out, *in, *bus;
};

/* ---- growing arrays ----------------------------------------------------------------------- */

/* Makes space for one more element in an array of n elements. Returns 0 if there is no memory. */
static int grow_array(xd_simulation *p, void *array, int64_t *cap, int64_t n, size_t size)
{
    void **a = array;
    if (n < *cap)
        return 1;
    int64_t want = *cap ? 2 * *cap : 64;
    while (want <= n)
        want *= 2;
    void *v = realloc(*a, (size_t)want * size);
    if (!v) {
        p->failed = 1;
        return 0;
    }
    *a = v;
    *cap = want;
    return 1;
}

static record *own_record(xd_simulation *p)
{
    return &p->s[p->now];
}

static void put_event(xd_simulation *p, event ev)
{
    record *s = own_record(p);
    if (grow_array(p, &s->ev, &s->cap, s->nev, sizeof ev))
        s->ev[s->nev++] = ev;
}

/* ---- recording the events of a rank ------------------------------------------------------- */

static double take_lap(xd_simulation *p)
{
    return p->seconds ? p->seconds(p->ctx) : 0;
}

static void on_group(void *cookie, int id, int color, int rank, int size)
{
    xd_simulation *p = cookie;
    record        *s = own_record(p);
    team          *t = realloc(s->team, (size_t)(id + 1) * sizeof *t);
    if (!t) {
        p->failed = 1;
        return;
    }
    s->team = t;
    s->nteam = id + 1;
    t[id] = (team){ .color = color, .rank = rank, .size = size };
    t[id].sent = calloc((size_t)size, sizeof *t->sent);
    t[id].got = calloc((size_t)size, sizeof *t->got);
    if (!t[id].sent || !t[id].got)
        p->failed = 1;
}

static void on_begin(void *cookie, int64_t number, int group, xd_message what, int peer,
                     const int64_t *bytes)
{
    xd_simulation *p = cookie;
    record        *s = own_record(p);
    int            n = what == XD_MESSAGE_COLLECTIVE ? s->team[group].size : 1;
    event          ev = { (ev_kind)what, group, peer, take_lap(p), number, *bytes, s->npool };
    s->nmessage = number;
    if (!grow_array(p, &s->pool, &s->poolcap, s->npool + n, sizeof *s->pool))
        return;
    memcpy(s->pool + s->npool, bytes, (size_t)n * sizeof *bytes);
    s->npool += n;
    put_event(p, ev);
}

static void on_end(void *cookie, int64_t number)
{
    xd_simulation *p = cookie;
    put_event(p, (event){ .what = EV_END, .after_s = take_lap(p), .number = number });
}

void xd_simulation_mark(xd_simulation *p, int mark)
{
    record *s = own_record(p);
    put_event(p, (event){ .what = EV_MARK, .after_s = take_lap(p), .number = mark });
    s->nmark = mark >= s->nmark ? mark + 1 : s->nmark;
}

xd_status xd_simulation_open(xd_simulation **out, int ranks, const xd_machine *m, xd_err *e)
{
    xd_simulation *p = *out = calloc(1, sizeof *p);
    int            hosts = ranks / (m->ranks > 0 ? m->ranks : 1) + 1;
    if (p) {
        p->m = m;
        p->n = ranks;
        p->s = calloc((size_t)ranks, sizeof *p->s);
        p->out = calloc((size_t)(ranks + hosts), sizeof *p->out);
        p->in = calloc((size_t)(ranks + hosts), sizeof *p->in);
        p->bus = calloc((size_t)hosts, sizeof *p->bus);
        p->rec = (xd_recorder){ p, on_group, on_begin, on_end };
    }
    if (p && p->s && p->out && p->in && p->bus)
        return XD_OK;
    xd_simulation_close(out);
    return xd_fail(e, XD_ENOMEM, "no memory to simulate %d ranks", ranks);
}

static void clear_record(record *s)
{
    for (int i = 0; i < s->nteam; i++) {
        free(s->team[i].sent);
        free(s->team[i].got);
    }
    free(s->ev), free(s->team), free(s->pool), free(s->message), free(s->mark), free(s->stretches);
    free(s->flights);
    memset(s, 0, sizeof *s);
}

void xd_simulation_close(xd_simulation **out)
{
    xd_simulation *p = *out;
    for (int r = 0; p && p->s && r < p->n; r++)
        clear_record(&p->s[r]);
    if (p)
        free(p->s), free(p->map), free(p->member), free(p->out), free(p->in), free(p->bus);
    free(p);
    *out = NULL;
}

const xd_recorder *xd_simulation_record(xd_simulation *p, int rank, double (*seconds)(void *ctx),
                                        void *ctx)
{
    p->now = rank;
    clear_record(&p->s[rank]);
    p->seconds = seconds;
    p->ctx = ctx;
    return &p->rec;
}

/* ---- finding the groups of ranks ---------------------------------------------------------- */

/* Finds the groups of ranks. Ranks that have recorded a group with the same number and color are
 * members of one group. */
static int find_teams(xd_simulation *p)
{
    int most = 0;
    for (int r = 0; r < p->n; r++)
        most += p->s[r].nteam;
    p->member = malloc((size_t)(most + 1) * (size_t)p->n * sizeof *p->member);
    struct { int id, color; } *seen = malloc((size_t)(most + 1) * sizeof *seen);
    for (int r = 0; seen && p->member && r < p->n; r++)
        for (int i = 0; i < p->s[r].nteam; i++) {
            team *t = &p->s[r].team[i];
            int   k = 0;
            while (k < p->nteams && (seen[k].id != i || seen[k].color != t->color))
                k++;
            if (k == p->nteams) {
                seen[k].id = i, seen[k].color = t->color;
                for (int a = 0; a < p->n; a++)
                    p->member[k * p->n + a] = -1;
                p->nteams++;
            }
            t->at = k;
            if (t->rank < p->n)
                p->member[k * p->n + t->rank] = r;
        }
    free(seen);
    return seen != NULL && p->member != NULL;
}

/* ---- sending messages ---------------------------------------------------------------------- */

/* Returns the hash key of a message from member a to member b of a group. The key with b = a is
 * that of the time at which member a begins a collective call. */
static uint64_t key_of(int at, int a, int b, ev_kind what, int64_t seq)
{
    uint64_t h = 0x9e3779b97f4a7c15u;
    uint64_t v[5] = { (uint64_t)at, (uint64_t)a, (uint64_t)b, (uint64_t)(what == EV_MEETS),
                      (uint64_t)seq };
    for (int i = 0; i < 5; i++) {
        h = (h ^ v[i]) * 0xbf58476d1ce4e5b9u;
        h ^= h >> 29;
    }
    return h ? h : 1;
}

static slot *find_slot(const xd_simulation *p, uint64_t key)
{
    for (int64_t i = (int64_t)(key % (uint64_t)p->cap);; i = (i + 1) % p->cap)
        if (!p->map[i].key || p->map[i].key == key)
            return &p->map[i];
}

static void leave_news(xd_simulation *p, uint64_t key, news stretches)
{
    if (2 * (p->used + 1) > p->cap) {
        slot   *old = p->map;
        int64_t n = p->cap, cap = n ? 2 * n : 4096;
        slot   *v = calloc((size_t)cap, sizeof *v);
        if (!v) {
            p->failed = 1;
            return;
        }
        p->map = v, p->cap = cap;
        for (int64_t i = 0; i < n; i++)
            if (old[i].key)
                *find_slot(p, old[i].key) = old[i];
        free(old);
    }
    *find_slot(p, key) = (slot){ key, stretches };
    p->used++;
}

static const slot *arrived_slot(const xd_simulation *p, uint64_t key)
{
    slot *s = p->cap ? find_slot(p, key) : NULL;
    return s && s->key ? s : NULL;
}

/* Passes a message through a port, as soon as the port is free, but not before the time `now`. The
 * message occupies the port for `takes` seconds. Returns the time at which the message has passed
 * the port. */
static double pass_port(double *port, double now, double takes)
{
    return *port = fmax(*port, now) + takes;
}

/* Sends a message at the current time of the sender. Returns the time at which the sender may reuse
 * the message's buffer. */
static double send_message(xd_simulation *p, int from, int to, uint64_t key, double bytes)
{
    int            a = from / p->m->ranks, b = to / p->m->ranks;
    const xd_wire *w = a == b ? &p->m->inside : &p->m->between;
    double         takes = bytes / w->bytes, now = p->s[from].t;
    double         gone = pass_port(&p->out[a == b ? from : p->n + a], now, takes);
    double         end = fmax(gone, pass_port(&p->in[a == b ? to : p->n + b], now, takes));
    if (a == b && w->shared > 0)
        end = fmax(end, pass_port(&p->bus[a], now, bytes / w->shared));
    leave_news(p, key, (news){ now, end - now, end + w->latency_s, 1 - w->overlap });
    *(a == b ? &p->s[from].lane.inside : &p->s[from].lane.between) += bytes;
    return gone;
}

/* ---- running the ranks -------------------------------------------------------------------- */

static void spend_until(xd_simulation *p, record *s, char what, double until)
{
    if (!(until > s->t))
        return;
    *(what == 'c' ? &s->lane.busy_s : &s->lane.wait_s) += until - s->t;
    if (s->nstretches && s->stretches[s->nstretches - 1].what == what &&
        s->stretches[s->nstretches - 1].to == s->t)
        s->stretches[s->nstretches - 1].to = until;
    else if (grow_array(p, &s->stretches, &s->stretch_cap, s->nstretches, sizeof *s->stretches))
        s->stretches[s->nstretches++] = (stretch){ what, s->t, until };
    s->t = until;
}

static void begin_message(xd_simulation *p, int r, const event *ev)
{
    record       *s = &p->s[r];
    team         *t = &s->team[ev->group];
    open_message *m = &s->message[ev->number];
    const int    *who = p->member + t->at * p->n;
    *m = (open_message){ ev->group, ev->peer, ev->what, 0, s->t, s->lane.busy_s, 0 };
    if (ev->what == EV_RECEIVES) {
        m->seq = t->got[ev->peer]++;
    } else if (ev->what == EV_SENDS) {
        m->seq = t->sent[ev->peer]++;
        m->gone = send_message(p, r, who[ev->peer],
                               key_of(t->at, t->rank, ev->peer, EV_SENDS, m->seq),
                               (double)ev->bytes);
    } else {
        m->seq = t->met++;
        for (int i = 1; i < t->size; i++) {
            int b = (t->rank + i) % t->size;
            if (s->pool[ev->to + b])
                m->gone = send_message(p, r, who[b], key_of(t->at, t->rank, b, EV_MEETS, m->seq),
                                       (double)s->pool[ev->to + b]);
        }
        leave_news(p, key_of(t->at, t->rank, t->rank, EV_MEETS, m->seq),
                   (news){ s->t, 0, s->t, 0 });
    }
}

/* Returns the seconds that a rank loses because it computed while a message was in transit. Each
 * second of computation counts once, even if several messages are in transit at that time. */
static double slowdown(record *s, const open_message *m, const news *n)
{
    double from = fmax(m->busy, s->slowed);
    double beside = fmin(fmin(s->lane.busy_s - from, s->t - n->start), n->takes);
    if (!(beside > 0))
        return 0;
    s->slowed = from + beside;
    return beside * n->lost;
}

/* Returns 1 if the members from `from` to `last` of a group have begun the message m. Otherwise
 * returns 0 and sets s->for_whom to the first of these ranks that has not begun the message. */
static int has_begun(const xd_simulation *p, record *s, open_message *m, const team *t, int from,
                     int last)
{
    for (int a = from > m->begun ? from : m->begun; a <= last; a++) {
        int at = m->what == EV_MEETS ? a : t->rank;
        if (!arrived_slot(p, key_of(t->at, a, at, m->what, m->seq))) {
            m->begun = a;
            s->for_whom = p->member[t->at * p->n + a];
            return 0;
        }
    }
    return 1;
}

/* Ends the wait of rank r for a message. Returns 0 if another rank has not begun its part of the
 * message. */
static int end_message(xd_simulation *p, int r, const event *ev)
{
    record       *s = &p->s[r];
    open_message *m = &s->message[ev->number];
    const team   *t = &s->team[m->group];
    news          all = { INFINITY, 0, m->gone, 0 };
    int           from = m->what == EV_MEETS ? 0 : m->peer;
    int           last = m->what == EV_MEETS ? t->size - 1 : m->peer;
    if (m->what == EV_SENDS) {
        spend_until(p, s, 'w', m->gone);
        return 1;
    }
    if (!has_begun(p, s, m, t, from, last))
        return 0;
    for (int a = from; a <= last; a++) {
        const slot *in = arrived_slot(p, key_of(t->at, a, t->rank, m->what, m->seq));
        if (!in || (m->what == EV_MEETS && a == t->rank))
            continue;
        all = (news){ fmin(all.start, in->n.start), fmax(all.takes, in->n.takes),
                      fmax(all.arrival, in->n.arrival), fmax(all.lost, in->n.lost) };
    }
    if (all.takes > 0 &&
        grow_array(p, &s->flights, &s->flight_cap, s->nflights, sizeof *s->flights))
        s->flights[s->nflights++] = (stretch){ 'm', all.start, all.arrival };
    spend_until(p, s, 'w', fmax(all.arrival, s->t) + slowdown(s, m, &all));
    return 1;
}

/* Runs the next event of rank r. If the rank computes before the event, runs only this computation,
 * because other ranks may be earlier afterwards. Returns 0 if the rank must wait for another
 * rank. */
static int run_events(xd_simulation *p, int r)
{
    record *s = &p->s[r];
    event  *ev = &s->ev[s->next];
    if (ev->after_s > 0) {
        spend_until(p, s, 'c', s->t + ev->after_s);
        ev->after_s = 0;
        return 1;
    }
    if (ev->what == EV_MARK)
        s->mark[ev->number] = s->t;
    else if (ev->what != EV_END)
        begin_message(p, r, ev);
    else if (!end_message(p, r, ev))
        return 0;
    s->next++;
    return 1;
}

static int prepare_scripts(xd_simulation *p)
{
    for (int r = 0; r < p->n; r++) {
        record *s = &p->s[r];
        s->message = calloc((size_t)s->nmessage + 1, sizeof *s->message);
        s->mark = malloc(((size_t)s->nmark + 1) * sizeof *s->mark);
        if (!s->message || !s->mark)
            return 0;
        for (int i = 0; i < s->nmark; i++)
            s->mark[i] = -1;
    }
    return find_teams(p);
}

/* Runs the events of all ranks; the rank with the earliest clock always runs next. For each rank,
 * `wake` [n] receives the time at which the rank continues, or INFINITY if the rank has ended or
 * waits for another rank. `rests` [n] receives the number of the rank that it waits for, or -1.
 * Returns 0 on a deadlock. */
static int run_all(xd_simulation *p, double *wake, int *rests)
{
    for (int r = 0; r < p->n; r++) {
        wake[r] = p->s[r].nev ? p->s[r].t : INFINITY;
        rests[r] = -1;
    }
    while (!p->failed) {
        int best = 0, left = 0;
        for (int r = 1; r < p->n; r++)
            best = wake[r] < wake[best] ? r : best;
        record *s = &p->s[best];
        if (wake[best] == INFINITY) {
            for (int r = 0; r < p->n; r++)
                left |= p->s[r].next < p->s[r].nev;
            return !left;
        }
        if (!run_events(p, best)) {
            rests[best] = s->for_whom;
            wake[best] = INFINITY;
            continue;
        }
        wake[best] = s->next < s->nev ? s->t : INFINITY;
        for (int r = 0; r < p->n; r++)
            if (rests[r] == best) {
                rests[r] = -1;
                wake[r] = p->s[r].t;
            }
    }
    return 1;
}

xd_status xd_simulation_run(xd_simulation *p, xd_lane *lane, xd_err *e)
{
    int    *rests = calloc((size_t)p->n, sizeof *rests), live = 1;
    double *wake = calloc((size_t)p->n, sizeof *wake);
    if (!rests || !wake || p->failed || !prepare_scripts(p))
        p->failed = 1;
    else
        live = run_all(p, wake, rests);
    free(rests);
    free(wake);
    if (p->failed)
        return xd_fail(e, XD_ENOMEM, "no memory to simulate %d ranks", p->n);
    if (!live)
        return xd_fail(e, XD_EINVAL, "the ranks of this plan would deadlock");
    for (int r = 0; r < p->n; r++) {
        lane[r] = p->s[r].lane;
        lane[r].end_s = p->s[r].t;
    }
    return XD_OK;
}

double xd_simulation_mark_s(const xd_simulation *p, int rank, int mark)
{
    const record *s = &p->s[rank];
    return mark >= 0 && mark < s->nmark && s->mark ? s->mark[mark] : -1;
}

void xd_simulation_events(const xd_simulation *p, int rank,
                          void (*fn)(void *ctx, char what, double from, double to), void *ctx)
{
    const record *s = &p->s[rank];
    for (int64_t i = 0; i < s->nstretches; i++)
        fn(ctx, s->stretches[i].what, s->stretches[i].from, s->stretches[i].to);
    for (int64_t i = 0; i < s->nflights; i++)
        fn(ctx, 'm', s->flights[i].from, s->flights[i].to);
}
