/* schedule.c - computes the scores of queued tasks; see schedule.h */
#include "serve/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* difference in score between a priority and the next lower one, in seconds; longer than any
     * task */
    CLASS_S = 10000000
};

void xd_schedule_free(xd_schedule *s)
{
    for (int i = 0; i < s->nowners; i++)
        free(s->owner[i].name);
    free(s->owner);
    *s = (xd_schedule){ .default_s = s->default_s };
}

static double used_at(const xd_schedule_owner *o, double now)
{
    return o->used_s * exp2((o->updated_s - now) / XD_SCHEDULE_HALF);
}

void xd_schedule_charge(xd_schedule *s, const char *owner, double seconds, double now)
{
    int i = 0;
    while (i < s->nowners && strcmp(s->owner[i].name, owner) != 0)
        i++;
    if (i == s->nowners) {
        xd_schedule_owner *more = realloc(s->owner, ((size_t)i + 1) * sizeof *more);
        char              *name = more ? strdup(owner) : NULL;
        s->owner = more ? more : s->owner;
        if (!name)
            return;
        s->owner[s->nowners++] = (xd_schedule_owner){ name, 0, now };
    }
    s->owner[i].used_s = used_at(&s->owner[i], now) + seconds;
    s->owner[i].updated_s = now;
}

/* Returns the difference between the seconds that the owner of a task has used and the seconds of
 * the owner who has used the least. */
static double debt_of(const xd_schedule *s, const xd_task *t, double now)
{
    double mine = 0, least = INFINITY;
    for (int i = 0; i < s->nowners; i++) {
        double used_s = used_at(&s->owner[i], now);
        least = used_s < least ? used_s : least;
        if (t->owner && strcmp(s->owner[i].name, t->owner) == 0)
            mine = used_s;
    }
    return s->nowners > 1 && mine > least ? mine - least : 0;
}

static double expected(const xd_schedule *s, const xd_task *t)
{
    return t->expected_s > 0 ? t->expected_s : s->default_s;
}

/* Returns the fraction of a task's work that is complete. A task consists of one text encoding, and
 * of the steps and the decoding of each image. */
static double part_done(const xd_task *t)
{
    int    images = t->images > 0 ? t->images : 1, image = t->image > 0 ? t->image - 1 : 0;
    double each = (1 - t->text_part) / images, steps = each - t->decode_part / images;
    if (t->state != XD_TASK_RUNNING || t->steps <= 0)
        return 0;
    double done = t->text_part + image * each + steps * t->step / t->steps;
    return done < 0 ? 0 : done > 1 ? 1 : done;
}

double xd_schedule_remaining(const xd_schedule *s, const xd_task *t)
{
    return expected(s, t) * (1 - part_done(t));
}

double xd_schedule_score(const xd_schedule *s, const xd_task *t, double now)
{
    double left = xd_schedule_remaining(s, t), spent = expected(s, t) - left;
    double gained = (now - t->arrived_s - spent) / XD_SCHEDULE_WAIT - spent;
    double score = left + debt_of(s, t, now) - (gained > 0 ? gained : 0);
    double slack = t->deadline_s > 0 ? t->deadline_s - now - left : INFINITY;
    return (slack < score ? slack : score) - (double)CLASS_S * t->priority;
}

int xd_schedule_preempts(const xd_schedule *s, const xd_task *t, const xd_task *running, double now)
{
    if (t->priority != running->priority)
        return t->priority > running->priority;
    return t->expected_s > 0 && running->expected_s > 0 &&
           2 * xd_schedule_remaining(s, t) < xd_schedule_remaining(s, running) &&
           xd_schedule_score(s, t, now) < xd_schedule_score(s, running, now);
}

int xd_schedule_should_split(int n, int ranks, double together, double alone)
{
    int busy = n < ranks ? n : ranks;
    return n > 1 && ranks > 1 && together > 0 && alone > 0 && alone <= busy * together;
}
