/* SPDX-License-Identifier: Apache-2.0 */
#include "report/json_value.h"

#include "base/quote.h"
#include "xalloc.h"

#include <math.h>
#include <stdio.h>
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

/* ---- ranks ---- */

json_t *ranks_json_list(const struct desc_ranks *ranks)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < ranks->n; i++)
        json_array_append_new(list, json_integer(ranks->items[i]));
    return list;
}

json_t *ranks_json_set(const struct desc_ranks *ranks)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = text_stream_open(&text, &len);
    for (uint32_t i = 0, last; i < ranks->n; i = last + 1) {
        last = i;
        while (last + 1 < ranks->n && ranks->items[last + 1] == ranks->items[last] + 1)
            last++;
        fprintf(out, last > i ? "%s%u-%u" : "%s%u", i ? "," : "", ranks->items[i],
                ranks->items[last]);
    }
    text_stream_close(out, &text);
    json_t *set = json_string(text);
    free(text);
    return set;
}
