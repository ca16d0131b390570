/* columns.h - text tables that fit a terminal of a given width
 *
 * A table that is too wide loses complete columns, least important first. If that is not enough,
 * the longest texts of the first wide column are cut. */
#ifndef XD_REPORT_COLUMNS_H
#define XD_REPORT_COLUMNS_H

#include <stddef.h>

enum { XD_MAXCOLUMNS = 16 };

typedef struct xd_column {
    const char *title;
    int         gap, width;     /* spaces before; width in letters, < 0: left-aligned          */
    int         removal;        /* order of removal, lowest first; 0: never removed            */
    int         hidden, cut;    /* set by xd_columns_fit; cut texts end in '+'                 */
} xd_column;

/* Hides columns until n of them fit into `room` letters (0: no limit), then narrows column `cut`,
 * which has width `longest` before any column is hidden. */
void xd_columns_fit(xd_column *c, int n, int room, int cut, int longest);
/* Writes a line of the cells; cells NULL: of the titles. */
void xd_columns_line(const xd_column *c, int n, const char *const *cells, char *out, size_t size);

#endif
