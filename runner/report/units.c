/* SPDX-License-Identifier: Apache-2.0 */
#include "report/units.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void units_scaled(char *out, size_t size, double v)
{
    static const char *const units[] = {"", " k", " M", " G", " T"};
    size_t unit = 0;
    while (v >= 999.5 && unit < 4) {
        v /= 1000;
        unit++;
    }
    snprintf(out, size, v < 9.95 && unit ? "%.1f%s" : "%.0f%s", v, units[unit]);
}

void units_duration(char *out, size_t size, double seconds)
{
    unsigned long t = seconds < 1e9 ? (unsigned long)(seconds + 0.5) : 1000000000u;
    if (t < 60)
        snprintf(out, size, "%lus", t);
    else if (t < 3600)
        snprintf(out, size, "%lum%02lus", t / 60, t % 60);
    else
        snprintf(out, size, "%luh%02lum", t / 3600, t % 3600 / 60);
}
