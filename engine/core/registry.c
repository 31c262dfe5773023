/* SPDX-License-Identifier: Apache-2.0
 *
 * A linear list, since a job names few backends.
 */
#include "core/registry.h"

#include "core/process.h"

#include <ctype.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

void registry_init(struct registry *r)
{
    *r = (struct registry){0};
    pthread_mutex_init(&r->lock, NULL);
}

static struct backend *registry_find(const struct registry *r, const char *name)
{
    for (uint32_t i = 0; i < r->n; i++) {
        if (strcasecmp(r->items[i]->name, name) == 0)
            return r->items[i];
    }
    return NULL;
}

int registry_add(struct registry *r, const struct backend *b, struct backend **out, struct diag *d)
{
    const struct backend *other = registry_find(r, b->name);
    if (other)
        return diag_set(d, COLLRUN_ERR_EXISTS, "two backends are named \"%s\": %s and %s", b->name,
                        other->path, b->path);
    struct backend **grown = realloc(r->items, (r->n + 1) * sizeof *grown);
    if (grown)
        r->items = grown;
    struct backend *copy = grown ? malloc(sizeof *copy) : NULL;
    if (!copy)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for backend \"%s\"", b->name);
    *copy = *b;
    r->items[r->n++] = copy;
    *out = copy;
    return COLLRUN_OK;
}

static const struct desc_backend *registry_in_job(const struct desc *desc, const char *name)
{
    for (uint32_t i = 0; i < desc->nbackends; i++) {
        if (strcasecmp(desc->backends[i].name, name) == 0)
            return &desc->backends[i];
    }
    return NULL;
}

static bool registry_is_plain_name(const char *name)
{
    size_t len = strlen(name);
    return len > 0 && len < BACKEND_NAME_LEN &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == len;
}

static const char here_in_this_library;

/* lib/collrun/backends/libcollrun_NAME.so of the prefix that holds this library. */
static bool registry_installed_path(const char *name, char out[PATH_MAX])
{
    Dl_info here;
    char real[PATH_MAX], lower[BACKEND_NAME_LEN];
    if (!registry_is_plain_name(name) || !dladdr(&here_in_this_library, &here) ||
        !realpath(here.dli_fname, real))
        return false;
    for (size_t i = 0; i <= strlen(name); i++)
        lower[i] = (char)tolower((unsigned char)name[i]);
    *strrchr(real, '/') = '\0';
    int n = snprintf(out, PATH_MAX, "%s/collrun/backends/libcollrun_%s.so", real, lower);
    return n > 0 && n < PATH_MAX && access(out, F_OK) == 0;
}

static int registry_load_file(struct process *p, const char *name, struct backend **out,
                              struct diag *d)
{
    char installed[PATH_MAX];
    struct backend b = {0};
    const struct desc_backend *job = registry_in_job(&p->desc, name);
    if (!job && !registry_installed_path(name, installed))
        return diag_set(d, COLLRUN_ERR_NOT_FOUND, "no backend named \"%s\"", name);
    int rc = backend_load(job ? job->path : installed, &b, d);
    if (rc == COLLRUN_OK && strcasecmp(b.name, name) != 0) {
        rc = diag_set(d, COLLRUN_ERR_INVALID, "%s is the backend \"%s\", not \"%s\"", b.path,
                      b.name, name);
        backend_close(&b);
    } else if (rc == COLLRUN_OK && (rc = registry_add(&p->registry, &b, out, d)) == COLLRUN_OK) {
        services_init(&(*out)->services, &p->control, job ? &job->options : NULL, NULL, "%s",
                      b.name);
    } else if (rc != COLLRUN_OK && b.path) {
        backend_close(&b);
    }
    return rc;
}

int registry_probe(struct process *p, const char *name, struct diag *d)
{
    char why[512];
    pthread_mutex_lock(&p->registry.lock);
    struct backend *b = registry_find(&p->registry, name);
    int rc = b ? COLLRUN_OK : registry_load_file(p, name, &b, d);
    if (rc == COLLRUN_OK && !b->is_open && backend_probe(b, why, sizeof why) != COLLRUN_OK)
        rc = diag_set(d, COLLRUN_ERR_UNAVAILABLE, "backend \"%s\" does not work here: %s", b->name,
                      why);
    pthread_mutex_unlock(&p->registry.lock);
    return rc;
}

int registry_load(struct process *p, const char *name, struct backend **out, struct diag *d)
{
    pthread_mutex_lock(&p->registry.lock);
    struct backend *b = registry_find(&p->registry, name);
    int rc = b ? COLLRUN_OK : registry_load_file(p, name, &b, d);
    if (rc == COLLRUN_OK)
        *out = b;
    pthread_mutex_unlock(&p->registry.lock);
    return rc;
}

int registry_get(struct process *p, const char *name, struct backend **out, struct diag *d)
{
    pthread_mutex_lock(&p->registry.lock);
    struct backend *b = registry_find(&p->registry, name);
    int rc = b ? COLLRUN_OK : registry_load_file(p, name, &b, d);
    if (rc == COLLRUN_OK)
        rc = backend_open(b, d);
    if (rc == COLLRUN_OK)
        *out = b;
    pthread_mutex_unlock(&p->registry.lock);
    const struct desc_backend *job = registry_in_job(&p->desc, name);
    if (rc != COLLRUN_OK && d && job)
        d->loc = job->loc;
    return rc;
}

void registry_fini(struct registry *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        backend_close(r->items[i]);
        free(r->items[i]);
    }
    free(r->items);
    pthread_mutex_destroy(&r->lock);
    *r = (struct registry){0};
}
