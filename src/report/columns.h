/* columns.h - makes text tables that fit a terminal of a given width.
 *
 * If a table is too wide, complete columns are hidden, the least important first. If hiding columns
 * is not enough, the longest texts of one column are cut. */
#ifndef XD_REPORT_COLUMNS_H
#define XD_REPORT_COLUMNS_H

#include <stddef.h>

typedef struct xd_column {
    const char *title;
    /* gap: number of spaces before the column. width: width of the column in letters; negative: the
     * texts are left-aligned. */
    int         gap, width;
    /* Order in which columns are hidden if the table is too wide, lowest number first; 0: the
     * column is never hidden. */
    int         removal;
    /* Results of xd_columns_fit. hidden: 1 if the column is hidden; cut: 1 if the column's texts
     * are cut, so that they end in '+'. */
    int         hidden, cut;
} xd_column;

/* Hides some of the n columns until the table is at most `room` letters wide (0: no limit). If the
 * table is still too wide without the columns that may be hidden, makes column `cut` narrower.
 * While other columns are hidden, column `cut` is assumed to have the width `longest`. */
void xd_columns_fit(xd_column *c, int n, int room, int cut, int longest);
/* Writes one line of the table with the texts `cells`, or the line of titles if `cells` is NULL. */
void xd_columns_line(const xd_column *c, int n, const char *const *cells, char *out, size_t size);

#endif
