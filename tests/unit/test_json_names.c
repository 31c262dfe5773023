/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of groups that are no UTF-8, or that the flight recorder has cut within a character, in the
 * objects of result.json and diag/evidence.json: no member is lost.
 */
#include "report/evidence_json.h"
#include "report/result.h"
#include "report/stall_report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static uint32_t both[] = {0, 1};
static const struct desc_ranks first = {both, 1}, second = {both + 1, 1};
static char name[] = "f\xc3";

/* The member `key` of the first item of a list. */
static const char *text_of_first(const json_t *o, const char *list, const char *key)
{
    return json_string_value(json_object_get(json_array_get(json_object_get(o, list), 0), key));
}

static void text_is(const char *text, const char *expected)
{
    assert_non_null(text);
    assert_string_equal(text, expected);
}

static void in_a_verdict(void **state)
{
    (void)state;
    const struct verdict_call call = {.ranks = first, .call = "f\xff(8)"};
    const struct verdict_wait wait = {
        .ranks = first, .group = name, .number = 3, .waited_for = second};
    struct verdict v;
    struct diag d;
    diag_init(&d);
    verdict_init(&v, CAUSE_DEADLOCK, 124, &d);
    v.group = name;
    v.calls = &call;
    v.waits = &wait;
    v.ncalls = v.nwaits = 1;
    json_t *o = verdict_json(&v);
    text_is(json_string_value(json_object_get(o, "group")), "f?");
    text_is(text_of_first(o, "calls", "call"), "f?(8)");
    text_is(text_of_first(o, "waits", "group"), "f?");
    text_is(text_of_first(o, "waits", "for"), "1");
    json_decref(o);
}

static void in_a_stall(void **state)
{
    (void)state;
    struct desc_host host = {.name = "node"};
    struct desc_rank places[2] = {{0}};
    struct rank_state ranks[2] = {{.phase = PHASE_RUNNING}, {.phase = PHASE_RUNNING}};
    const struct desc desc = {.hosts = &host, .nhosts = 1, .ranks = places, .nranks = 2};
    struct stall_wait wait = {
        .waiting = both, .nwaiting = 1, .missing = both + 1, .nmissing = 1, .described = true};
    const struct stall stall = {.waits = &wait, .nwaits = 1, .culprits = both + 1, .nculprits = 1};
    const struct stall_report r = {.desc = &desc, .ranks = ranks, .stall = &stall};
    memcpy(wait.op.name, name, sizeof name);
    wait.op.started = 3;
    json_t *o = stall_report_json(&r);
    text_is(json_string_value(json_object_get(o, "group")), "f?");
    text_is(text_of_first(o, "waits", "group"), "f?");
    const char *text = json_string_value(json_object_get(o, "text"));
    assert_non_null(text);
    assert_non_null(strstr(text, "f?#3"));
    json_decref(o);
}

static void among_stragglers(void **state)
{
    (void)state;
    struct straggler_sums sums = {.group = name};
    json_t *o = stragglers_json(&(struct straggler_list){.items = &sums, .n = 1});
    text_is(text_of_first(o, "stragglers", "group"), "f?");
    json_decref(o);
}

static void in_the_evidence(void **state)
{
    (void)state;
    const struct desc desc = {.job_name = "job", .run_id = "run"};
    struct evidence e = {.desc = &desc, .job = {.class = CAUSE_MISMATCH, .group = name}};
    json_t *o = evidence_json(&e);
    const json_t *failure = json_object_get(o, "failure");
    text_is(json_string_value(json_object_get(failure, "group")), "f?");
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_a_verdict),
        cmocka_unit_test(in_a_stall),
        cmocka_unit_test(among_stragglers),
        cmocka_unit_test(in_the_evidence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
