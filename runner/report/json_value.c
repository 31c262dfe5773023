/* SPDX-License-Identifier: Apache-2.0 */
#include "report/json_value.h"

#include "base/quote.h"
#include "xalloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

json_t *json_value_text(const char *text)
{
    size_t len = strlen(text), n;
    char *valid = xmalloc(len + 1);
    memcpy(valid, text, len + 1);
    for (size_t i = 0; i < len; i += n) {
        n = utf8_len(valid + i, len - i);
        if (!n)
            valid[i] = '?', n = 1;
    }
    json_t *string = json_string(valid);
    free(valid);
    return string;
}

json_t *json_value_number(double value)
{
    if (isfinite(value))
        return json_real(value);
    return json_string(isnan(value) ? "NaN" : value < 0 ? "-Infinity" : "Infinity");
}
