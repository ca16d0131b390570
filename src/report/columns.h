/* columns.h - tables of text in a given number of columns of a terminal
 *
 * Where a table is too wide, whole columns go, those that matter least first. If that is not
 * enough, the longest texts of the first wide column are cut. */
#ifndef XD_REPORT_COLUMNS_H
#define XD_REPORT_COLUMNS_H

#include <stddef.h>

enum { XD_MAXCOLUMNS = 16 };

typedef struct xd_column {
    const char *title;
    int         gap, width;     /* spaces before it; letters, negative: on the left            */
    int         goes;           /* the lowest goes first; 0: it stays                          */
    int         hidden, cut;    /* set by xd_columns_fit: not shown; a long text ends in '+'   */
} xd_column;

/* Hides columns until n of them fit into `room` letters (0: any), and then narrows column `cut`,
 * which becomes as wide as `longest` before any is hidden. */
void xd_columns_fit(xd_column *c, int n, int room, int cut, int longest);
/* A line of the cells, or of the titles if cells is NULL. */
void xd_columns_line(const xd_column *c, int n, const char *const *cells, char *out, size_t size);

#endif
