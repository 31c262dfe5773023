/* SPDX-License-Identifier: Apache-2.0 */
#include "base/devices.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- lines ---- */

static void devices_put_field(struct buf *out, const char *text)
{
    for (; *text; text++)
        buf_put(out, strchr("\t\n\r", *text) ? " " : text, 1);
}

void devices_write(const struct devices *devices, struct buf *out)
{
    for (uint32_t i = 0; i < devices->n; i++) {
        const struct device *device = &devices->items[i];
        const char *const fields[] = {device->id, device->model, device->cpus};
        buf_put(out, "device", 6);
        for (size_t k = 0; k < 3; k++) {
            buf_put(out, "\t", 1);
            devices_put_field(out, fields[k]);
        }
        buf_put(out, "\n", 1);
    }
    if (*devices->reason) {
        buf_put(out, "reason\t", 7);
        devices_put_field(out, devices->reason);
        buf_put(out, "\n", 1);
    }
    buf_put(out, "end\n", 4);
}

/* The field of a line that starts at *at, which moves behind it. */
static const char *devices_take_field(const char **at, const char *end, struct arena *arena)
{
    const char *start = *at;
    const char *tab = memchr(start, '\t', (size_t)(end - start));
    *at = tab ? tab + 1 : end;
    return arena_strndup(arena, start, (size_t)((tab ? tab : end) - start));
}

static void devices_read_line(const char *line, const char *end, struct arena *arena,
                              struct devices *out)
{
    if (end - line > 7 && strncmp(line, "device\t", 7) == 0 && out->n < DEVICES_MAX) {
        struct device *device = &out->items[out->n++];
        line += 7;
        device->id = devices_take_field(&line, end, arena);
        device->model = devices_take_field(&line, end, arena);
        device->cpus = devices_take_field(&line, end, arena);
    } else if (end - line >= 7 && strncmp(line, "reason\t", 7) == 0) {
        line += 7;
        out->reason = devices_take_field(&line, end, arena);
    }
}

bool devices_complete(const char *text, size_t len)
{
    return len >= 4 && memcmp(text + len - 4, "end\n", 4) == 0 &&
           (len == 4 || text[len - 5] == '\n');
}

void devices_read(const char *text, size_t len, struct arena *arena, struct devices *out)
{
    *out = (struct devices){.items = arena_calloc(arena, DEVICES_MAX, sizeof *out->items),
                            .reason = ""};
    for (const char *end; out->items && len && (end = memchr(text, '\n', len));) {
        devices_read_line(text, end, arena, out);
        len -= (size_t)(end - text) + 1;
        text = end + 1;
    }
}

/* ---- pools ---- */

/* The device that an entry of a mask names: its number, its id, or as much of the id as no other
 * has. NULL: none, and why. */
static const struct device *devices_named(const struct devices *all, const char *entry, size_t len,
                                          const char **why)
{
    enum { PREFIX_MIN = 5 };
    char *end;
    const struct device *found = NULL;
    bool several = false;
    unsigned long number = strtoul(entry, &end, 10);
    *why = "names none";
    if (len && end == entry + len)
        return number < all->n ? &all->items[number] : NULL;
    *why = "names no whole device";
    for (uint32_t i = 0; i < all->n && !several; i++) {
        const char *id = all->items[i].id;
        if (strncasecmp(id, entry, len) != 0 || (len < PREFIX_MIN && id[len]))
            continue;
        if (!id[len])
            return &all->items[i];
        several = found != NULL;
        found = &all->items[i];
    }
    if (several)
        *why = "names several";
    return several ? NULL : found;
}

static bool devices_has(const struct devices *pool, const struct device *device)
{
    for (uint32_t i = 0; i < pool->n; i++)
        if (strcmp(pool->items[i].id, device->id) == 0)
            return true;
    return false;
}

/* "CUDA_VISIBLE_DEVICES=0,GPU-dead leaves 1 of 8: "GPU-dead" names no whole device" */
static const char *devices_describe_mask(const char *setting, const struct devices *left,
                                         uint32_t n, const char *end, struct arena *arena)
{
    const char *number = left->n ? arena_printf(arena, "%u", left->n) : "none";
    return arena_printf(arena, "%s leaves %s of %u%s", setting, number, n, end);
}

int devices_pool(const struct devices *all, const char *variable, const char *mask,
                 struct arena *arena, struct devices *out, struct diag *d)
{
    const char *end = "", *why;
    *out = *all;
    if (!mask)
        return 0;
    out->n = 0;
    out->items = arena_calloc(arena, all->n, sizeof *out->items);
    const char *setting = arena_printf(arena, "%s=%s", variable, mask);
    if (!out->items || !setting)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    for (const char *entry = mask; end && !*end && *entry; entry += strspn(entry, " ,")) {
        entry += strspn(entry, " ");
        size_t len = strcspn(entry, ", ");
        const struct device *device = devices_named(all, entry, len, &why);
        if (device && devices_has(out, device)) {
            out->n = 0;
            device = NULL;
            why = "is listed twice, which leaves none";
        }
        if (device)
            out->items[out->n++] = *device;
        else
            end = arena_printf(arena, ": \"%.*s\" %s", (int)len, entry, why);
        entry += len;
    }
    if (out->n < all->n)
        out->reason = devices_describe_mask(setting, out, all->n, end, arena);
    return arena_failed(arena) ? diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory") : 0;
}

static const char *devices_model(const struct device *device, const char *title)
{
    return *device->model ? device->model : title;
}

const char *devices_text(const struct devices *devices, const char *title, struct arena *arena)
{
    const char *models = "";
    uint32_t different = 0;
    if (!devices->n)
        return arena_printf(arena, "none (%s)", devices->reason);
    for (uint32_t i = 0; models && i < devices->n; i++) {
        const char *model = devices_model(&devices->items[i], title);
        uint32_t k = 0;
        while (strcmp(devices_model(&devices->items[k], title), model) != 0)
            k++;
        if (k == i)
            models = arena_printf(arena, "%s%s%s", models, different++ ? ", " : "", model);
    }
    return arena_printf(arena, different > 1 ? "%u (%s)" : "%u x %s", devices->n, models);
}
