/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON in memory, read in place: values are pointers into a text that json_check has accepted, and
 * which a byte 0 follows.
 *
 *     for (const char *e = json_first(array); e; e = json_next(e))
 *         number = json_member(e, "id");
 */
#ifndef REPLAY_JSON_H
#define REPLAY_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NULL if all of the text is one JSON value, else where it is not. */
const char *json_check(const char *text);
/* The first value of an array or object; NULL: past the last one, or the value is neither. Members
 * of an object are its values. */
const char *json_first(const char *value);
const char *json_next(const char *value);
/* NULL: no object, or no such member. */
const char *json_member(const char *object, const char *key);
/* Item `index` of an array; NULL: there is none. */
const char *json_item(const char *array, int index);
/* False: no whole number in the range of the type. */
bool json_int(const char *value, int64_t *out);
/* Any number. */
bool json_number(const char *value, double *out);
/* Copies a string, without its escapes; false: no string, or longer than `size` - 1. */
bool json_string(const char *value, char *out, size_t size);
/* The string value starts with `text`. */
bool json_starts(const char *value, const char *text);
#endif
