/* columns.c - prints text tables that fit the width of a terminal; see columns.h */
#include "report/columns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_CUT = 6 }; /* min length in letters of a text that is cut */

static int width_of(const xd_column *c, int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++) {
        int title = (int)strlen(c[i].title), wide = abs(c[i].width);
        sum += c[i].hidden ? 0 : c[i].gap + (wide > title ? wide : title);
    }
    return sum;
}

/* Returns the column to remove next from a table that is too wide, or -1 if no column may be
 * removed. */
static int next_to_go(const xd_column *c, int n)
{
    int found = -1;
    for (int i = 0; i < n; i++)
        if (!c[i].hidden && c[i].removal && (found < 0 || c[i].removal < c[found].removal))
            found = i;
    return found;
}

void xd_columns_fit(xd_column *c, int n, int room, int cut, int longest)
{
    int gone;
    if (room <= 0 || width_of(c, n) <= room)
        return;
    c[cut].width = c[cut].width < 0 ? -longest : longest;
    while (width_of(c, n) > room && (gone = next_to_go(c, n)) >= 0)
        c[gone].hidden = 1;
    int width = room - (width_of(c, n) - longest);
    c[cut].cut = width < longest;
    if (width < longest)
        c[cut].width = (c[cut].width < 0 ? -1 : 1) * (width > LEAST_CUT ? width : LEAST_CUT);
}

void xd_columns_line(const xd_column *c, int n, const char *const *cells, char *out, size_t size)
{
    size_t at = 0;
    *out = 0;
    for (int i = 0; i < n && at < size; i++) {
        const char *text = cells ? cells[i] : c[i].title;
        int         wide = abs(c[i].width), len = (int)strlen(text);
        int         over = c[i].cut && len > wide && cells;
        if (c[i].hidden)
            continue;
        int got = over ? snprintf(out + at, size - at, "%*s%.*s+", c[i].gap, "", wide - 1, text)
                       : snprintf(out + at, size - at, "%*s%*s", c[i].gap, "", c[i].width, text);
        at += got > 0 ? (size_t)got : 0;
    }
    at = strlen(out);
    while (at > 0 && out[at - 1] == ' ')
        out[--at] = 0;
}
