/* SPDX-License-Identifier: Apache-2.0 */
#include "rank/devices.h"

#include "base/devices.h"
#include "base/names.h"
#include "core/backend.h"
#include "core/services.h"

#include <collrun/types.h>
#include <stdlib.h>

/* Fills in `out`, which then points into `found` and `why`. */
static void devices_ask(struct backend *b, struct collrun_device *found, struct devices *out,
                        char *why, size_t len)
{
    const struct collrun_memory_kind *kind = &b->kind;
    why[0] = '\0';
    if (!kind->devices) {
        snprintf(why, len, "the backend \"%s\" declares no kind of memory", b->name);
        return;
    }
    int n = kind->devices(&b->services.table, found, DEVICES_MAX, why, len);
    if (n < 0 && !why[0])
        snprintf(why, len, "the backend \"%s\" cannot list its devices: %s", b->name,
                 status_text(n));
    if (n > DEVICES_MAX)
        snprintf(why, len, "only the first %d of %d devices are used", DEVICES_MAX, n);
    else if (n > 0)
        why[0] = '\0';
    out->n = n < 0 ? 0 : n > DEVICES_MAX ? DEVICES_MAX : (uint32_t)n;
    for (uint32_t i = 0; i < out->n; i++)
        out->items[i] =
            (struct device){.id = found[i].id, .model = found[i].model, .cpus = found[i].cpus};
}

int devices_print(const char *path, FILE *out)
{
    struct backend b;
    struct diag d;
    struct buf lines;
    char why[sizeof d.text];
    struct devices devices = {.items = calloc(DEVICES_MAX, sizeof *devices.items), .reason = why};
    struct collrun_device *found = calloc(DEVICES_MAX, sizeof *found);
    buf_init(&lines);
    diag_init(&d);
    int code = devices.items && found ? 0 : 2;
    if (code == 0 && backend_load(path, &b, &d) == COLLRUN_OK) {
        services_init(&b.services, NULL, NULL, NULL, "%s", b.name);
        devices_ask(&b, found, &devices, why, sizeof why);
        backend_close(&b);
    } else {
        snprintf(why, sizeof why, "%s", d.text);
    }
    if (code == 0)
        devices_write(&devices, &lines);
    if (lines.failed || fwrite(lines.data, 1, lines.len, out) != lines.len)
        code = 2;
    buf_fini(&lines);
    free(devices.items);
    free(found);
    return code;
}
