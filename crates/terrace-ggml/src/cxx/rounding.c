// C's `round` and `roundf` where the C library's round the number just below a half up, as mingw-w64's do: quantised
// weights would differ from those of other systems.

#include <math.h>

float roundf(float x) {
    const float whole = truncf(x);
    // The difference is exact; of infinity it is not a number.
    return fabsf(x - whole) >= 0.5f ? whole + copysignf(1.0f, x) : whole;
}

double round(double x) {
    const double whole = trunc(x);
    return fabs(x - whole) >= 0.5 ? whole + copysign(1.0, x) : whole;
}
