/* SPDX-License-Identifier: Apache-2.0
 *
 * A few lines of JSON output: the engine links nothing but libc. Strings come from plugins and may
 * hold anything, so bytes that are no UTF-8 are replaced.
 */
#include "describe.h"

#include "backend.h"
#include "names.h"
#include "params.h"
#include "plugin.h"

#include <collrun/workload.h>
#include <string.h>

/* The length of the valid UTF-8 sequence at s; 0 if there is none. */
static size_t utf8_len(const unsigned char *s)
{
    size_t len = s[0] < 0x80                   ? 1
                 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
                 : (s[0] & 0xf0) == 0xe0       ? 3
                 : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                               : 0;
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    bool surrogate = (s[0] == 0xed && s[1] >= 0xa0) || (s[0] == 0xf4 && s[1] >= 0x90);
    return overlong || surrogate ? 0 : len;
}

static void json_string(FILE *out, const char *text)
{
    if (!text) {
        fputs("null", out);
        return;
    }
    fputc('"', out);
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        size_t len = utf8_len(s);
        if (*s == '"' || *s == '\\')
            fprintf(out, "\\%c", *s);
        else if (*s < 0x20 || *s == 0x7f)
            fprintf(out, "\\u%04x", *s);
        else if (len)
            fwrite(s, 1, len, out);
        else
            fputs("\\ufffd", out);
        s += len ? len : 1;
    }
    fputc('"', out);
}

static void json_member(FILE *out, const char *before, const char *key, const char *text)
{
    fprintf(out, "%s\"%s\":", before, key);
    json_string(out, text);
}

static void head(FILE *out, const char *kind, const char *path)
{
    json_member(out, "{", "kind", kind);
    json_member(out, ",", "path", path);
}

static void describe_error(FILE *out, const char *kind, const char *path, const struct diag *d)
{
    head(out, kind, path);
    json_member(out, ",", "error", d->text);
    json_member(out, ",", "hint", d->hint);
    fputs("}\n", out);
}

static void put_flags(FILE *out, uint64_t flags)
{
    static const char *const names[] = {"one_host",     "needs_device", "tags",          "recv_any",
                                        "inline_check", "starts_all",   "messages_apart"};
    const char *comma = "";
    fputs(",\"flags\":[", out);
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        if (flags >> i & 1) {
            fprintf(out, "%s\"%s\"", comma, names[i]);
            comma = ",";
        }
    }
    fputc(']', out);
}

static void put_operations(FILE *out, const struct backend *b)
{
    static const char *const words[] = {"native", "emulated", "unsupported"};
    fputs(",\"operations\":{", out);
    for (unsigned kind = 0; kind < COLLRUN_KIND_COUNT; kind++)
        fprintf(out, "%s\"%s\":\"%s\"", kind ? "," : "", kind_name(kind),
                words[backend_supports(b, kind)]);
    fputc('}', out);
}

static void put_params(FILE *out, const char *key, const struct collrun_param *table)
{
    fprintf(out, ",\"%s\":[", key);
    for (const struct collrun_param *p = table; p && p->name; p++) {
        json_member(out, p == table ? "{" : ",{", "name", p->name);
        json_member(out, ",", "type", params_type_name(p->type));
        json_member(out, ",", "default", p->def);
        json_member(out, ",", "min", p->min);
        json_member(out, ",", "max", p->max);
        json_member(out, ",", "help", p->help ? p->help : "");
        fputc('}', out);
    }
    fputc(']', out);
}

static void describe_backend(FILE *out, const char *path)
{
    struct backend b;
    struct diag d;
    diag_init(&d);
    if (backend_load(path, &b, &d) != COLLRUN_OK) {
        describe_error(out, "backend", path, &d);
        return;
    }
    char why[512];
    services_init(&b.services, NULL, NULL, NULL, "%s", b.name);
    bool available = backend_probe(&b, why, sizeof why) == COLLRUN_OK;
    head(out, "backend", path);
    json_member(out, ",", "name", b.name);
    json_member(out, ",", "version", b.table.version);
    fprintf(out, ",\"abi\":%u,\"available\":%s", b.table.abi, available ? "true" : "false");
    json_member(out, ",", "found", available ? why : "");
    json_member(out, ",", "reason", available ? "" : why);
    put_flags(out, b.table.flags);
    put_operations(out, &b);
    if (b.table.options)
        put_params(out, "options", b.table.options);
    fputs("}\n", out);
    backend_close(&b);
}

static void describe_workload(FILE *out, const char *path)
{
    struct collrun_workload w;
    struct diag d;
    diag_init(&d);
    if (plugin_open_workload(path, &w, &d) != COLLRUN_OK ||
        params_check_table(w.params, path, &d) != COLLRUN_OK) {
        describe_error(out, "workload", path, &d);
        return;
    }
    head(out, "workload", path);
    json_member(out, ",", "name", w.name);
    json_member(out, ",", "summary", w.summary ? w.summary : "");
    put_params(out, "params", w.params);
    fputs("}\n", out);
}

int describe_plugins(char *const *args, int nargs, FILE *out)
{
    for (int i = 0; i < nargs; i++) {
        if (strncmp(args[i], "backend:", 8) != 0 && strncmp(args[i], "workload:", 9) != 0) {
            fprintf(stderr, "collrun-engine: \"%s\" is neither backend:PATH nor workload:PATH\n",
                    args[i]);
            return 2;
        }
    }
    for (int i = 0; i < nargs; i++) {
        const char *path = strchr(args[i], ':') + 1;
        if (args[i][0] == 'b')
            describe_backend(out, path);
        else
            describe_workload(out, path);
        fflush(out);
    }
    return 0;
}
