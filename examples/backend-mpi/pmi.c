/* SPDX-License-Identifier: Apache-2.0
 *
 * The process manager for Open MPI. Open MPI 3 and 4 can be started by Flux: they load the PMI
 * library that FLUX_PMI_LIBRARY_PATH names and call a dozen functions of the old PMI-1 interface:
 * the own rank, the ranks of this host, put a value, get a value of another rank. This shared
 * object is that library, so there is no daemon and no socket.
 *
 * - What a rank puts is its "modex"; it travels through collrun's rendezvous.
 * - MPI_COMM_WORLD has room for all ranks of the job, and no rank waits for all of them: a rank's
 *   modex is fetched when a group with that rank is opened, and Open MPI connects to a rank when it
 *   first sends to it.
 * - One thing is fixed when MPI starts: which ranks share memory. Those are the members, on one
 *   host, of the group with which they all started.
 * - PMI's functions have no context argument; hence `pmi`, the one variable of this backend.
 * - A failure in here cannot be returned, since MPI_Init would exit the process: library_escape
 *   leaves MPI.
 */
#include "mpi_backend.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PMI_SUCCESS = 0, PMI_FAIL = -1, VALUE_LEN = 16384, KEY_LEN = 256, MODEX_LEN = 1 << 16 };

/* What one rank has put: KEY, NUL, VALUE, NUL, ... */
struct modex {
    uint32_t rank; /* in the job */
    size_t len;
    char *bytes;
    struct modex *next;
};

static struct {
    pthread_mutex_t lock; /* of the modexes: any thread of Open MPI may read them */
    struct modex mine, *others;
    struct library *library;
    const struct collrun_group_desc *desc; /* during MPI_Init */
    const bool *starting;
    int *clique, nclique; /* ranks on this host that start MPI together, in ascending order */
    bool exchanged;
    int failure; /* status of the exchange; its message is stored */
} pmi = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- modexes ---- */

const char *pmi_modex(size_t *len)
{
    *len = pmi.mine.len;
    return pmi.mine.bytes;
}

static bool modex_is_known(uint32_t rank)
{
    bool known = false;
    pthread_mutex_lock(&pmi.lock);
    for (const struct modex *modex = pmi.others; modex && !known; modex = modex->next)
        known = modex->rank == rank;
    pthread_mutex_unlock(&pmi.lock);
    return known;
}

static int modex_keep(const struct collrun_group_desc *desc, uint32_t rank, const char *bytes,
                      size_t len)
{
    const struct collrun_services *s = desc->services;
    struct modex *modex = malloc(sizeof *modex);
    char *copy = malloc(len);
    if (!modex || !copy) {
        free(modex);
        free(copy);
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    }
    memcpy(copy, bytes, len);
    pthread_mutex_lock(&pmi.lock);
    *modex = (struct modex){.rank = rank, .len = len, .bytes = copy, .next = pmi.others};
    pmi.others = modex;
    pthread_mutex_unlock(&pmi.lock);
    return COLLRUN_OK;
}

int pmi_learn(const struct collrun_group_desc *desc, const char *what, uint32_t member,
              bool *starting)
{
    const struct collrun_rendezvous *rendezvous = desc->rendezvous;
    char key[32];
    size_t len = 0;
    char *bytes = malloc(MODEX_LEN);
    if (!bytes)
        return desc->services->fail(desc->services->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    snprintf(key, sizeof key, "%s.%u", what, member);
    int rc = rendezvous->get(rendezvous->ctx, key, bytes, MODEX_LEN, &len);
    if (rc == COLLRUN_OK && starting)
        *starting = len == 1;
    if (rc == COLLRUN_OK && len > 1 && member != desc->rank &&
        !modex_is_known(desc->world_rank[member]))
        rc = modex_keep(desc, desc->world_rank[member], bytes, len);
    free(bytes);
    return rc;
}

/* The value of a key in a modex, or NULL. The caller holds the lock. */
static const char *modex_find(const struct modex *modex, const char *key)
{
    for (const char *p = modex->bytes; p && p < modex->bytes + modex->len;) {
        const char *value = p + strlen(p) + 1;
        if (strcmp(p, key) == 0)
            return value;
        p = value + strlen(value) + 1;
    }
    return NULL;
}

/* ---- start ---- */

static int pmi_compare_ranks(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static int pmi_find_clique(const struct collrun_group_desc *desc, const bool *starting)
{
    pmi.clique = calloc(desc->nranks, sizeof *pmi.clique);
    if (!pmi.clique)
        return desc->services->fail(desc->services->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < desc->nranks; i++) {
        if (!starting[i] || desc->host_of[i] != desc->host_of[desc->rank])
            continue;
        pmi.clique[pmi.nclique++] = (int)desc->world_rank[i];
        pmi.library->shares_memory[desc->world_rank[i]] = true;
    }
    qsort(pmi.clique, (size_t)pmi.nclique, sizeof *pmi.clique, pmi_compare_ranks);
    return COLLRUN_OK;
}

struct setting {
    const char *name, *value;
    bool forced;  /* else a setting of the user has precedence */
    char *before; /* owned */
};

static void settings_apply(struct setting *settings, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *before = getenv(settings[i].name);
        settings[i].before = before ? strdup(before) : NULL;
        setenv(settings[i].name, settings[i].value, settings[i].forced);
    }
}

static void settings_undo(struct setting *settings, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (settings[i].before)
            setenv(settings[i].name, settings[i].before, 1);
        else
            unsetenv(settings[i].name);
        free(settings[i].before);
    }
}

static int pmi_init(void *arg)
{
    struct library *library = arg;
    int provided;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Type_contiguous(BULK, MPI_BYTE, &library->bulk);
    MPI_Type_commit(&library->bulk);
    if (provided != MPI_THREAD_MULTIPLE)
        library_fail(library, "this Open MPI was built without MPI_THREAD_MULTIPLE");
    return COLLRUN_OK;
}

/* Open MPI reads its settings from the environment; they are set while it starts, then restored. */
static int pmi_init_with_settings(struct library *library, const struct collrun_group_desc *desc)
{
    Dl_info self;
    if (!dladdr(&collrun_backend_v1, &self))
        return desc->services->fail(desc->services->ctx, COLLRUN_ERR_SYSTEM, "%s", dlerror());
    struct setting settings[] = {
        {"FLUX_JOB_ID", "1", true, NULL},
        {"FLUX_PMI_LIBRARY_PATH", self.dli_fname, true, NULL},
        {"OMPI_MCA_pmix", "flux", true, NULL},
        {"OMPI_MCA_schizo", "flux", true, NULL},
        /* do not collect the data of all ranks: some may not exist */
        {"OMPI_MCA_pmix_base_collect_data", "0", true, NULL},
        /* no files to clean up */
        {"OMPI_MCA_orte_create_session_dirs", "0", true, NULL},
        /* segments whose name is removed as soon as they are mapped */
        {"OMPI_MCA_shmem", "sysv", true, NULL},
        /* the engine handles signals */
        {"OMPI_MCA_opal_signal", "", true, NULL},
        /* op/avx saturates sums of 8 and 16 bit integers, which must wrap */
        {"OMPI_MCA_op", "^avx", true, NULL},
        {"OMPI_MCA_pml", "ob1", true, NULL},
        /* no "put": after the death of a peer it may loop for ever inside MPI */
        {"OMPI_MCA_btl_tcp_flags", "send,inplace", true, NULL},
        {"OMPI_MCA_btl", "self,vader,tcp", false, NULL},
        {"OMPI_MCA_btl_vader_single_copy_mechanism", "none", false, NULL},
        {"OMPI_MCA_btl_tcp_if_include", desc->interface, false, NULL},
        {"OMPI_MCA_coll", "basic,libnbc,self,inter", false, NULL},
        {"OMPI_MCA_mpi_yield_when_idle", "1", false, NULL},
    };
    const size_t n = sizeof settings / sizeof settings[0];
    settings_apply(settings, n);
    int rc = library_guard(library, pmi_init, library);
    settings_undo(settings, n);
    return rc == COLLRUN_OK && !atomic_load(&library->failed) ? COLLRUN_OK : COLLRUN_ERR_BACKEND;
}

int pmi_start(struct library *library, const struct collrun_group_desc *desc, const bool *starting)
{
    const struct collrun_services *s = desc->services;
    pmi.library = library;
    library->rank = desc->world_rank[desc->rank];
    int rc = pmi_find_clique(desc, starting);
    if (rc != COLLRUN_OK)
        return rc;
    pmi.desc = desc;
    pmi.starting = starting;
    rc = pmi_init_with_settings(library, desc);
    pmi.desc = NULL;
    pmi.starting = NULL;
    if (rc != COLLRUN_OK)
        return pmi.failure ? pmi.failure : s->fail(s->ctx, rc, "%s", library->why);
    library->running = true;
    return COLLRUN_OK;
}

/* During MPI_Init: this rank's modex is complete, and Open MPI is about to read those of others. */
static int pmi_exchange(void)
{
    const struct collrun_rendezvous *rendezvous = pmi.desc->rendezvous;
    char key[32];
    snprintf(key, sizeof key, "modex.%u", pmi.desc->rank);
    int rc = rendezvous->put(rendezvous->ctx, key, pmi.mine.bytes, pmi.mine.len);
    for (uint32_t i = 0; i < pmi.desc->nranks && rc == COLLRUN_OK; i++)
        if (pmi.starting[i])
            rc = pmi_learn(pmi.desc, "modex", i, NULL);
    return rc;
}

/* ---- PMI-1, called by Open MPI ---- */

#define PMI __attribute__((visibility("default")))
#define PMI_NUMBER(function, number)                                                               \
    PMI int function(int *out);                                                                    \
    int function(int *out)                                                                         \
    {                                                                                              \
        *out = (number);                                                                           \
        return PMI_SUCCESS;                                                                        \
    }

PMI_NUMBER(PMI_Init, 0) /* not spawned */
PMI_NUMBER(PMI_Initialized, 1)
PMI_NUMBER(PMI_Get_size, WORLD_SIZE)
PMI_NUMBER(PMI_Get_universe_size, WORLD_SIZE)
PMI_NUMBER(PMI_Get_rank, (int)pmi.library->rank)
PMI_NUMBER(PMI_Get_appnum, 0)
PMI_NUMBER(PMI_Get_clique_size, pmi.nclique)
PMI_NUMBER(PMI_KVS_Get_name_length_max, KEY_LEN)
PMI_NUMBER(PMI_KVS_Get_key_length_max, KEY_LEN)
PMI_NUMBER(PMI_KVS_Get_value_length_max, VALUE_LEN)

PMI int PMI_Finalize(void);
PMI int PMI_Barrier(void);
PMI _Noreturn int PMI_Abort(int code, const char *message);
PMI int PMI_Get_clique_ranks(int *ranks, int n);
PMI int PMI_KVS_Get_my_name(char *name, int len);
PMI int PMI_KVS_Put(const char *space, const char *key, const char *value);
PMI int PMI_KVS_Commit(const char *space);
PMI int PMI_KVS_Get(const char *space, const char *key, char *value, int len);

int PMI_Finalize(void)
{
    return PMI_SUCCESS;
}

/* The first barrier is the exchange; later ones would wait for ranks that may never exist. */
int PMI_Barrier(void)
{
    if (pmi.exchanged)
        return PMI_SUCCESS;
    pmi.exchanged = true;
    pmi.failure = pmi_exchange();
    if (pmi.failure == COLLRUN_OK)
        return PMI_SUCCESS;
    library_fail(pmi.library,
                 "the ranks that start MPI together could not exchange their addresses");
    library_escape();
}

int PMI_Abort(int code, const char *message)
{
    (void)message; /* carries no information; the reason is on stderr */
    library_fail(pmi.library, "Open MPI gave up (code %d); its message is on this rank's stderr",
                 code);
    library_escape();
}

int PMI_Get_clique_ranks(int *ranks, int n)
{
    if (n != pmi.nclique)
        return PMI_FAIL;
    memcpy(ranks, pmi.clique, (size_t)n * sizeof *ranks);
    return PMI_SUCCESS;
}

int PMI_KVS_Get_my_name(char *name, int len)
{
    snprintf(name, (size_t)len, "collrun");
    return PMI_SUCCESS;
}

int PMI_KVS_Put(const char *space, const char *key, const char *value)
{
    (void)space;
    size_t nkey = strlen(key) + 1, nvalue = strlen(value) + 1;
    char *bytes = realloc(pmi.mine.bytes, pmi.mine.len + nkey + nvalue);
    if (!bytes)
        return PMI_FAIL;
    memcpy(bytes + pmi.mine.len, key, nkey);
    memcpy(bytes + pmi.mine.len + nkey, value, nvalue);
    pmi.mine.bytes = bytes;
    pmi.mine.len += nkey + nvalue;
    return PMI_SUCCESS;
}

int PMI_KVS_Commit(const char *space)
{
    (void)space;
    return PMI_SUCCESS;
}

int PMI_KVS_Get(const char *space, const char *key, char *value, int len)
{
    (void)space;
    pthread_mutex_lock(&pmi.lock);
    const char *found = modex_find(&pmi.mine, key);
    for (const struct modex *modex = pmi.others; modex && !found; modex = modex->next)
        found = modex_find(modex, key);
    pthread_mutex_unlock(&pmi.lock);
    if (!found || strlen(found) >= (size_t)len)
        return PMI_FAIL;
    snprintf(value, (size_t)len, "%s", found);
    return PMI_SUCCESS;
}
