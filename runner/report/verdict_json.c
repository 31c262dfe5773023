/* SPDX-License-Identifier: Apache-2.0 */
#include "report/verdict_json.h"

#include "report/json_value.h"
#include "report/ranks_json.h"

static json_t *verdict_json_text(const char *text)
{
    return text && *text ? json_value_text(text) : json_null();
}

static json_t *verdict_json_calls(const struct verdict *v)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < v->ncalls; i++)
        json_array_append_new(list,
                              json_pack("{s:o, s:o}", "ranks", ranks_json_set(&v->calls[i].ranks),
                                        "call", json_value_text(v->calls[i].call)));
    return list;
}

static json_t *verdict_json_waits(const struct verdict *v)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < v->nwaits; i++) {
        const struct verdict_wait *w = &v->waits[i];
        json_array_append_new(
            list, json_pack("{s:o, s:o, s:o, s:o}", "ranks", ranks_json_set(&w->ranks), "group",
                            json_value_text(w->group), "number",
                            w->number ? json_integer((json_int_t)w->number) : json_null(), "for",
                            ranks_json_set(&w->waited_for)));
    }
    return list;
}

static json_t *verdict_json_exception(const struct rank_exception *e)
{
    json_t *o = e ? json_pack("{s:o, s:o, s:o, s:o}", "type", json_value_text(e->type), "text",
                              json_value_text(e->text), "file", verdict_json_text(e->file), "line",
                              e->line ? json_integer(e->line) : json_null())
                  : json_null();
    if (e && e->thread[0])
        json_object_set_new(o, "thread", json_value_text(e->thread));
    return o;
}

static json_t *verdict_json_doing(const struct verdict *v)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < v->ndoing; i++)
        json_array_append_new(list, json_pack("{s:i, s:o}", "rank", (int)v->doing[i].rank, "text",
                                              json_value_text(v->doing[i].text)));
    return list;
}

static json_t *verdict_json_warnings(const struct verdict *v)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < v->nwarnings; i++)
        json_array_append_new(list, json_pack("{s:i, s:o}", "rank", (int)v->warnings[i].rank,
                                              "text", json_value_text(v->warnings[i].text)));
    return list;
}

json_t *verdict_json_network(const struct network_cut *cut)
{
    const struct network_fault *f = &cut->fault;
    json_t *hosts = json_array();
    for (int i = 0; i < 2 && cut->hosts[i]; i++)
        json_array_append_new(hosts, json_value_text(cut->hosts[i]));
    return json_pack("{s:o, s:i, s:s, s:i, s:b, s:f, s:I, s:i, s:i}", "hosts", hosts, "rank",
                     (int)cut->rank, "address", f->address, "port", (int)f->port, "connected",
                     !f->opening, "seconds", f->silent_s, "unacknowledged", (json_int_t)f->bytes,
                     "retransmits", f->probed ? 0 : (int)f->attempts, "probes",
                     f->probed ? (int)f->attempts : 0);
}

json_t *verdict_json(const struct verdict *v)
{
    json_t *o = json_object();
    json_object_set_new(o, "class", json_string(verdict_class(v)));
    json_object_set_new(o, "culprits", ranks_json_list(&v->culprits));
    json_object_set_new(o, "suspects", ranks_json_list(&v->suspects));
    json_object_set_new(o, "group", verdict_json_text(v->group));
    json_object_set_new(o, "kind", verdict_json_text(v->kind));
    json_object_set_new(o, "number",
                        v->group && v->number ? json_integer((json_int_t)v->number) : json_null());
    json_object_set_new(o, "field", verdict_json_text(v->field));
    json_object_set_new(o, "calls", verdict_json_calls(v));
    json_object_set_new(o, "waits", verdict_json_waits(v));
    json_object_set_new(o, "exception", verdict_json_exception(v->exception));
    if (v->ndoing)
        json_object_set_new(o, "doing", verdict_json_doing(v));
    if (v->network)
        json_object_set_new(o, "network", verdict_json_network(v->network));
    if (v->nwarnings)
        json_object_set_new(o, "warnings", verdict_json_warnings(v));
    json_object_set_new(o, "text",
                        v->class == CAUSE_NONE ? json_null() : verdict_json_text(v->diag.text));
    return o;
}
