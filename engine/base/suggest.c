/* SPDX-License-Identifier: Apache-2.0
 *
 * Edit distance by rows (optimal string alignment), for names of at most WORD_MAX letters; longer
 * ones are not compared.
 */
#include "base/suggest.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { WORD_MAX = 48 };

static size_t suggest_min3(size_t a, size_t b, size_t c)
{
    size_t m = a < b ? a : b;
    return m < c ? m : c;
}

static bool suggest_same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

static size_t suggest_distance(const char *a, const char *b)
{
    size_t la = strlen(a), lb = strlen(b);
    size_t rows[3][WORD_MAX + 1];
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= lb; j++)
        last[j] = j;
    for (size_t i = 1; i <= la; i++) {
        row[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            row[j] = suggest_min3(last[j] + 1, row[j - 1] + 1,
                                  last[j - 1] + !suggest_same(a[i - 1], b[j - 1]));
            bool swap = i > 1 && j > 1 && suggest_same(a[i - 1], b[j - 2]) &&
                        suggest_same(a[i - 2], b[j - 1]);
            if (swap && before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
        size_t *oldest = before;
        before = last;
        last = row;
        row = oldest;
    }
    return last[lb];
}

const char *suggest(const char *written, const char *const *names, size_t n)
{
    size_t len = strlen(written);
    if (!len || len > WORD_MAX)
        return NULL;
    const char *best = NULL;
    size_t best_distance = 0;
    for (size_t i = 0; i < n; i++) {
        size_t other = strlen(names[i]);
        if (!other || other > WORD_MAX)
            continue;
        size_t d = suggest_distance(written, names[i]);
        size_t longest = other > len ? other : len;
        size_t limit = longest <= 4 ? 1 : longest <= 8 ? 2 : 3;
        if (d <= limit && d < longest && (!best || d < best_distance)) {
            best = names[i];
            best_distance = d;
        }
    }
    return best;
}

const char *suggest_text(const char *written, const char *title, const char *const *names, size_t n,
                         char out[SUGGEST_TEXT])
{
    enum { ROOM = SUGGEST_TEXT - 8 }; /* without ", ..." */
    const char *meant = suggest(written, names, n);
    int used = 0;
    if (meant)
        used = snprintf(out, ROOM, "did you mean \"%.64s\"? ", meant);
    used += snprintf(out + used, (size_t)(ROOM - used), "%.64s: ", title);
    for (size_t i = 0; i < n; i++) {
        const int len = (int)strlen(names[i]) + 2;
        if (used + len >= ROOM) {
            snprintf(out + used, (size_t)(SUGGEST_TEXT - used), "%s...", i ? ", " : "");
            break;
        }
        used += snprintf(out + used, (size_t)(ROOM - used), "%s%s", i ? ", " : "", names[i]);
    }
    return out;
}
