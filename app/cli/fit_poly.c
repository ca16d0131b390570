/* fit_poly.c - fits a polynomial by least squares, with the QR decomposition (Givens rotations) of
 * the Vandermonde matrix. The normal equations are not used, because they would square the
 * condition number of the Vandermonde matrix. */
#include "cli/fit_poly.h"

#include <math.h>
#include <string.h>

static const double least = 1e-10; /* minimum pivot, relative to the norm of the pivot's
                                           column */

/* Adds a row to the upper triangular matrix r of N = XD_FIT_POWERS rows and N + 1 columns by Givens
 * rotations. The last column of r is the right-hand side: the values y that the polynomial
 * approximates. */
static void add_row(double r[XD_FIT_POWERS][XD_FIT_POWERS + 1], double row[XD_FIT_POWERS + 1])
{
    for (int k = 0; k < XD_FIT_POWERS; k++) {
        double len = hypot(r[k][k], row[k]);
        if (!(len > 0))
            continue;
        double c = r[k][k] / len, s = row[k] / len;
        for (int i = k; i <= XD_FIT_POWERS; i++) {
            double a = r[k][i], b = row[i];
            r[k][i] = c * a + s * b;
            row[i] = c * b - s * a;
        }
    }
}

int xd_fit_poly(const double (*points)[2], int n, double poly[XD_FIT_POWERS])
{
    double r[XD_FIT_POWERS][XD_FIT_POWERS + 1], top = 0;
    memset(r, 0, sizeof r);
    for (int i = 0; i < n; i++) {
        if (!isfinite(points[i][0]) || !isfinite(points[i][1]))
            return 0;
        top = fmax(top, fabs(points[i][0]));
    }
    for (int i = 0; i < n && top > 0; i++) { /* divides all x by the largest absolute value of x */
        double row[XD_FIT_POWERS + 1], x = points[i][0] / top, power = 1;
        for (int k = XD_FIT_POWERS - 1; k >= 0; k--, power *= x)
            row[k] = power;
        row[XD_FIT_POWERS] = points[i][1];
        add_row(r, row);
    }
    for (int k = XD_FIT_POWERS - 1; k >= 0; k--) {
        double v = r[k][XD_FIT_POWERS], column = 0;
        for (int i = 0; i <= k; i++)
            column = hypot(column, r[i][k]);
        if (!(fabs(r[k][k]) > least * column))
            return 0;
        for (int i = k + 1; i < XD_FIT_POWERS; i++)
            v -= r[k][i] * poly[i];
        poly[k] = v / r[k][k];
    }
    for (int k = 0; k < XD_FIT_POWERS; k++)
        poly[k] /= pow(top, XD_FIT_POWERS - 1 - k);
    return 1;
}

double xd_fit_at(const double poly[XD_FIT_POWERS], double x)
{
    double v = 0;
    for (int k = 0; k < XD_FIT_POWERS; k++)
        v = v * x + poly[k];
    return v;
}

double xd_fit_explained(const double (*points)[2], int n, const double poly[XD_FIT_POWERS])
{
    double mean = 0, off = 0, all = 0;
    for (int i = 0; i < n; i++)
        mean += points[i][1] / n;
    for (int i = 0; i < n; i++) {
        off += pow(points[i][1] - xd_fit_at(poly, points[i][0]), 2);
        all += pow(points[i][1] - mean, 2);
    }
    return all > 0 ? 1 - off / all : 1;
}
