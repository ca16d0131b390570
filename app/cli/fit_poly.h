/* fit_poly.h - fits a polynomial to points by least squares */
#ifndef XD_CLI_FIT_POLY_H
#define XD_CLI_FIT_POLY_H

enum { XD_FIT_POWERS = 5 }; /* number of coefficients, for a polynomial of degree 4 */

/* Fits the polynomial `poly` to n points (x, y). The coefficients begin with the highest power, as
 * in numpy.polyfit. Returns 0 if a point is not finite, or if the solution is not unique because
 * the points have fewer different values of x than the polynomial has coefficients. */
int    xd_fit_poly(const double (*points)[2], int n, double poly[XD_FIT_POWERS]);
/* Returns the value of the polynomial at x. */
double xd_fit_at(const double poly[XD_FIT_POWERS], double x);
/* Returns the coefficient of determination, the share of the variance of y that the polynomial
 * explains. */
double xd_fit_explained(const double (*points)[2], int n, const double poly[XD_FIT_POWERS]);

#endif
