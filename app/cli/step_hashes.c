/* step_hashes.c - files of step hashes; see step_hashes.h */
#include "cli/step_hashes.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

static const char HEADER[] = "xdit step hashes 1\n";
enum { MAXFILE = 1 << 30, MAXPLACE = 64 };

typedef struct entry {
    /* steps are counted from 1 and blocks from 0; block -1 stands for the latents */
    int          image, step, pass, block;
    xd_step_hash hash;
} entry;

typedef struct list {
    const char *name; /* name of the file with the hashes, or "this run" */
    entry      *v;
    int64_t     n, room;
} list;

static int add_entry(list *l, const entry *one)
{
    if (l->n == l->room) {
        int64_t room = l->room ? 2 * l->room : 256;
        entry  *v = realloc(l->v, (size_t)room * sizeof *v);
        if (!v)
            return 0;
        l->v = v;
        l->room = room;
    }
    l->v[l->n++] = *one;
    return 1;
}

static void name_place(char place[MAXPLACE], const entry *one)
{
    if (one->block >= 0)
        snprintf(place, MAXPLACE, "pass %d block %d", one->pass, one->block);
    else
        snprintf(place, MAXPLACE, "latents");
}

/* ---- reading and writing files of hashes --------------------------------------------------- */

static xd_status take_image(list *l, const xd_result *r, int image, xd_err *e)
{
    xd_hash_counts      n;
    const xd_step_hash *h = xd_result_hashes(r, image, &n);
    int                 blocks = n.passes * n.blocks;
    int                 taken = 1;
    for (int step = 0; h && taken && step < n.steps; step++, h += 1 + blocks) {
        for (int i = 0; i < blocks && taken; i++)
            taken = add_entry(
                l, &(entry){ image + 1, step + 1, i / n.blocks + 1, i % n.blocks, h[1 + i] });
        taken = taken && add_entry(l, &(entry){ image + 1, step + 1, 0, -1, h[0] });
    }
    return taken ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for the hashes of an image");
}

static xd_status write_list(const list *l, const char *path, xd_err *e)
{
    xd_out    out;
    xd_status s = xd_out_open(&out, path, e);
    if (s != XD_OK)
        return s;
    FILE *f = out.f;
    fputs(HEADER, f);
    for (int64_t i = 0; i < l->n; i++) {
        char         place[MAXPLACE];
        const entry *one = &l->v[i];
        name_place(place, one);
        fprintf(f, "image %d step %d %s %016" PRIx64 " %.17g", one->image, one->step, place,
                one->hash.bits, one->hash.square);
        for (int k = 0; k < XD_HASH_SUMS; k++)
            fprintf(f, " %.17g", one->hash.sums[k]);
        fputc('\n', f);
    }
    return xd_out_commit(&out, e);
}

/* Reads one line; returns 1 if the line has the format of write_list. */
static int read_entry(const char *line, entry *one)
{
    int n = 0;
    if (sscanf(line, "image %d step %d latents %n", &one->image, &one->step, &n) == 2 && n)
        one->pass = 0, one->block = -1;
    else if (sscanf(line, "image %d step %d pass %d block %d %n", &one->image, &one->step,
                    &one->pass, &one->block, &n) != 4 ||
             !n)
        return 0;
    char *p;
    one->hash.bits = strtoull(line + n, &p, 16);
    one->hash.square = strtod(p, &p);
    for (int k = 0; k < XD_HASH_SUMS; k++) {
        const char *from = p;
        one->hash.sums[k] = strtod(from, &p);
        if (p == from)
            return 0;
    }
    return 1;
}

static xd_status read_list(list *l, const char *path, xd_err *e)
{
    char     *text = NULL;
    size_t    len;
    xd_status s = xd_file_read(path, MAXFILE, &text, &len, e);
    if (s != XD_OK)
        return s;
    l->name = path;
    char *p = text;
    if (strncmp(p, HEADER, strlen(HEADER)) != 0)
        s = xd_fail(e, XD_EFORMAT, "%s is not a file that --determinism_file has written", path);
    else
        p += strlen(HEADER);
    for (int line = 2; s == XD_OK && *p; line++) {
        entry one;
        char *end = p + strcspn(p, "\n");
        int   more = *end != 0;
        *end = 0;
        if (!read_entry(p, &one))
            s = xd_fail(e, XD_EFORMAT, "%s: line %d is not a hash of a step", path, line);
        else if (!add_entry(l, &one))
            s = xd_fail(e, XD_ENOMEM, "no memory for the hashes in %s", path);
        p = end + more;
    }
    free(text);
    return s;
}

/* ---- comparing ----------------------------------------------------------------------------- */

static int64_t compare_places(const entry *a, const entry *b)
{
    const int order[][2] = { { a->image, b->image },
                             { a->step, b->step },
                             /* the hash of the latents follows the hashes of the blocks */
                             { a->block < 0, b->block < 0 },
                             { a->pass, b->pass },
                             { a->block, b->block } };
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (order[i][0] != order[i][1])
            return order[i][0] - order[i][1];
    return 0;
}

/* Estimates the relative difference of two tensors from the sums in their hashes (xd_step_hash):
 * the root mean square of the elements' differences, divided by the root mean square of the
 * elements. */
static double difference_of(const xd_step_hash *a, const xd_step_hash *b)
{
    double sum = 0;
    for (int k = 0; k < XD_HASH_SUMS; k++)
        sum += (a->sums[k] - b->sums[k]) * (a->sums[k] - b->sums[k]);
    return a->square > 0 ? sqrt(sum / XD_HASH_SUMS / a->square) : sum > 0 ? INFINITY : 0;
}

static xd_status compare_lists(const list *a, const list *b, char summary[512], xd_err *e)
{
    const entry *first[2] = { NULL, NULL }, *last[2] = { NULL, NULL };
    int64_t      equal = 0;
    for (int64_t i = 0, k = 0; i < a->n && k < b->n;) {
        int64_t order = compare_places(&a->v[i], &b->v[k]);
        if (order) {
            i += order < 0, k += order > 0;
            continue;
        }
        int same = a->v[i].hash.bits == b->v[k].hash.bits;
        equal += same;
        if (!same && !first[0])
            first[0] = &a->v[i], first[1] = &b->v[k];
        if (a->v[i].block < 0)
            last[0] = &a->v[i], last[1] = &b->v[k];
        i++, k++;
    }
    if (!equal && !first[0])
        return xd_fail(e, XD_EFORMAT, "%s and %s have no step in common", a->name, b->name);
    if (!first[0]) {
        snprintf(summary, 512, "%.150s and %.150s are equal to the bit: %" PRId64 " hashes",
                 a->name, b->name, equal);
        return XD_OK;
    }
    char place[MAXPLACE];
    name_place(place, first[0]);
    xd_fail(e, XD_EFORMAT,
            "%s and %s differ: first in image %d, step %d, %s, by about %.2g of the root mean "
            "square; the last latents differ by %.2g",
            a->name, b->name, first[0]->image, first[0]->step, place,
            difference_of(&first[0]->hash, &first[1]->hash),
            last[0] ? difference_of(&last[0]->hash, &last[1]->hash) : NAN);
    return XD_EFORMAT;
}

xd_status xd_step_hashes_begin(const char *path, xd_err *e)
{
    list l = { 0 };
    if (!xd_file_exists(path))
        return xd_file_writable(path, e);
    xd_status s = read_list(&l, path, e);
    free(l.v);
    return s;
}

xd_status xd_step_hashes_check(const xd_result *r, const char *path, char summary[512], xd_err *e)
{
    list      mine = { .name = "this run" }, other = { 0 };
    xd_status s = XD_OK;
    summary[0] = 0;
    for (int i = 0; s == XD_OK && i < xd_result_count(r); i++)
        s = take_image(&mine, r, i, e);
    if (s == XD_OK && !xd_file_exists(path)) {
        s = write_list(&mine, path, e);
    } else if (s == XD_OK) {
        s = read_list(&other, path, e);
        s = s == XD_OK ? compare_lists(&other, &mine, summary, e) : s;
    }
    free(mine.v);
    free(other.v);
    return s;
}

xd_status xd_step_hashes_compare(const char *a, const char *b, char summary[512], xd_err *e)
{
    list      of[2] = { { 0 }, { 0 } };
    xd_status s = read_list(&of[0], a, e);
    s = s == XD_OK ? read_list(&of[1], b, e) : s;
    s = s == XD_OK ? compare_lists(&of[0], &of[1], summary, e) : s;
    free(of[0].v);
    free(of[1].v);
    return s;
}
