/* fit_poly.h - a polynomial through points, by least squares */
#ifndef XD_CLI_FIT_POLY_H
#define XD_CLI_FIT_POLY_H

enum { XD_FIT_POWERS = 5 };     /* coefficients: degree 4                                       */

/* poly: from the highest power, as numpy.polyfit gives it. 0: x has fewer different values than the
 * polynomial has coefficients, or a point is not finite. */
int    xd_fit_poly(const double (*points)[2], int n, double poly[XD_FIT_POWERS]);
double xd_fit_at(const double poly[XD_FIT_POWERS], double x);
/* The share of the variance of y that the polynomial explains. */
double xd_fit_explained(const double (*points)[2], int n, const double poly[XD_FIT_POWERS]);

#endif
