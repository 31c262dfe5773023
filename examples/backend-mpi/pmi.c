/* SPDX-License-Identifier: Apache-2.0
 *
 * The process manager that Open MPI is told it runs under. Open MPI 3 and 4 can be started by Flux,
 * whose PMI library they load from FLUX_PMI_LIBRARY_PATH and ask, with a dozen functions of the old
 * PMI-1 interface: who am I, who is on this host, keep this for the others, what did that other
 * rank leave. This very shared object is that library. So there is no daemon and no socket; a
 * rank's answers come from here, and what it leaves travels through collrun's rendezvous as its
 * "card".
 *
 * MPI_COMM_WORLD stands for all ranks that the job may have. Nobody waits for it: a rank's card is
 * learned when a group with that rank is opened, and Open MPI connects to a rank when it first
 * sends to it. One thing is settled for good when MPI starts: which ranks share memory. Those are
 * the members, on one host, of the group with which they all started.
 *
 * PMI's functions have no argument for a state; hence `pmi`, the one variable of this backend. A
 * failure in here cannot be returned, since MPI_Init would end the process: it leaves by
 * library_escape.
 */
#include "mpi_backend.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PMI_SUCCESS = 0, PMI_FAIL = -1, VALUE_LEN = 16384, KEY_LEN = 256, CARD_LEN = 1 << 16 };

/* What one rank left: KEY, NUL, VALUE, NUL, again and again. */
struct card {
    uint32_t rank; /* in the job */
    size_t len;
    char *bytes;
    struct card *next;
};

static struct {
    pthread_mutex_t lock; /* of the cards: Open MPI asks from any thread */
    struct card mine, *others;
    struct library *library;
    const struct collrun_group_desc *desc; /* while MPI_Init is under way */
    const bool *fresh;
    int *clique, nclique; /* ranks on this host that start MPI together, in ascending order */
    bool exchanged;
    int failure; /* of the exchange; its sentence is told */
} pmi = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- cards ---- */

const char *pmi_card(size_t *len)
{
    *len = pmi.mine.len;
    return pmi.mine.bytes;
}

static bool card_is_known(uint32_t rank)
{
    bool known = false;
    pthread_mutex_lock(&pmi.lock);
    for (const struct card *card = pmi.others; card && !known; card = card->next)
        known = card->rank == rank;
    pthread_mutex_unlock(&pmi.lock);
    return known;
}

static int card_keep(const struct collrun_group_desc *desc, uint32_t rank, const char *bytes,
                     size_t len)
{
    const struct collrun_services *s = desc->services;
    struct card *card = malloc(sizeof *card);
    char *copy = malloc(len);
    if (!card || !copy) {
        free(card);
        free(copy);
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    }
    memcpy(copy, bytes, len);
    pthread_mutex_lock(&pmi.lock);
    *card = (struct card){.rank = rank, .len = len, .bytes = copy, .next = pmi.others};
    pmi.others = card;
    pthread_mutex_unlock(&pmi.lock);
    return COLLRUN_OK;
}

int pmi_learn(const struct collrun_group_desc *desc, const char *what, uint32_t member, bool *fresh)
{
    const struct collrun_rendezvous *rendezvous = desc->rendezvous;
    char key[32];
    size_t len = 0;
    char *bytes = malloc(CARD_LEN);
    if (!bytes)
        return desc->services->fail(desc->services->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    snprintf(key, sizeof key, "%s.%u", what, member);
    int rc = rendezvous->get(rendezvous->ctx, key, bytes, CARD_LEN, &len);
    if (rc == COLLRUN_OK && fresh)
        *fresh = len == 1;
    if (rc == COLLRUN_OK && len > 1 && member != desc->rank &&
        !card_is_known(desc->world_rank[member]))
        rc = card_keep(desc, desc->world_rank[member], bytes, len);
    free(bytes);
    return rc;
}

/* The value of a key in a card, or NULL; under the lock. */
static const char *card_find(const struct card *card, const char *key)
{
    for (const char *p = card->bytes; p && p < card->bytes + card->len;) {
        const char *value = p + strlen(p) + 1;
        if (strcmp(p, key) == 0)
            return value;
        p = value + strlen(value) + 1;
    }
    return NULL;
}

/* ---- start ---- */

static int ascending(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static int find_clique(const struct collrun_group_desc *desc, const bool *fresh)
{
    pmi.clique = calloc(desc->nranks, sizeof *pmi.clique);
    if (!pmi.clique)
        return desc->services->fail(desc->services->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < desc->nranks; i++) {
        if (!fresh[i] || desc->host_of[i] != desc->host_of[desc->rank])
            continue;
        pmi.clique[pmi.nclique++] = (int)desc->world_rank[i];
        pmi.library->near[desc->world_rank[i]] = true;
    }
    qsort(pmi.clique, (size_t)pmi.nclique, sizeof *pmi.clique, ascending);
    return COLLRUN_OK;
}

struct setting {
    const char *name, *value;
    bool forced;  /* else the user's own setting stands */
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

static int init(void *arg)
{
    struct library *library = arg;
    int provided;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Type_contiguous(BULK, MPI_BYTE, &library->bulk);
    MPI_Type_commit(&library->bulk);
    if (provided != MPI_THREAD_MULTIPLE)
        library_lose(library, "this Open MPI was built without MPI_THREAD_MULTIPLE");
    return COLLRUN_OK;
}

/* Open MPI takes its settings from the environment. They stay no longer than it needs to read them.
 */
static int init_with_settings(struct library *library, const struct collrun_group_desc *desc)
{
    Dl_info self;
    if (!dladdr(&collrun_backend_v1, &self))
        return desc->services->fail(desc->services->ctx, COLLRUN_ERR_SYSTEM, "%s", dlerror());
    struct setting settings[] = {
        {"FLUX_JOB_ID", "1", true, NULL},
        {"FLUX_PMI_LIBRARY_PATH", self.dli_fname, true, NULL},
        {"OMPI_MCA_pmix", "flux", true, NULL},
        {"OMPI_MCA_schizo", "flux", true, NULL},
        {"OMPI_MCA_pmix_base_collect_data", "0", true,
         NULL}, /* rank 0 knows of all ranks? it may not be there */
        {"OMPI_MCA_orte_create_session_dirs", "0", true, NULL}, /* nothing to clean up */
        {"OMPI_MCA_shmem", "sysv", true,
         NULL}, /* memory that has no name, as soon as it is mapped */
        {"OMPI_MCA_opal_signal", "", true, NULL}, /* signals are the engine's */
        {"OMPI_MCA_op", "^avx", true,
         NULL}, /* which saturates 8 and 16 bits, where integers wrap */
        {"OMPI_MCA_pml", "ob1", true, NULL},
        {"OMPI_MCA_btl", "self,vader,tcp", false, NULL},
        {"OMPI_MCA_btl_vader_single_copy_mechanism", "none", false, NULL},
        {"OMPI_MCA_btl_tcp_if_include", desc->interface, false, NULL},
        {"OMPI_MCA_coll", "basic,libnbc,self,inter", false, NULL},
        {"OMPI_MCA_mpi_yield_when_idle", "1", false, NULL},
    };
    const size_t n = sizeof settings / sizeof settings[0];
    settings_apply(settings, n);
    int rc = library_guard(library, init, library);
    settings_undo(settings, n);
    return rc == COLLRUN_OK && !atomic_load(&library->lost) ? COLLRUN_OK : COLLRUN_ERR_BACKEND;
}

int pmi_start(struct library *library, const struct collrun_group_desc *desc, const bool *fresh)
{
    const struct collrun_services *s = desc->services;
    pmi.library = library;
    library->rank = desc->world_rank[desc->rank];
    int rc = find_clique(desc, fresh);
    if (rc != COLLRUN_OK)
        return rc;
    pmi.desc = desc;
    pmi.fresh = fresh;
    rc = init_with_settings(library, desc);
    pmi.desc = NULL;
    pmi.fresh = NULL;
    if (rc != COLLRUN_OK)
        return pmi.failure ? pmi.failure : s->fail(s->ctx, rc, "%s", library->why);
    library->running = true;
    return COLLRUN_OK;
}

/* In the middle of MPI_Init: this rank's card is complete, and the next thing that Open MPI wants
 * is that of others. */
static int exchange(void)
{
    const struct collrun_rendezvous *rendezvous = pmi.desc->rendezvous;
    char key[32];
    snprintf(key, sizeof key, "card.%u", pmi.desc->rank);
    int rc = rendezvous->put(rendezvous->ctx, key, pmi.mine.bytes, pmi.mine.len);
    for (uint32_t i = 0; i < pmi.desc->nranks && rc == COLLRUN_OK; i++)
        if (pmi.fresh[i])
            rc = pmi_learn(pmi.desc, "card", i, NULL);
    return rc;
}

/* ---- PMI-1, as Open MPI calls it ---- */

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

/* The first barrier is the exchange; the others would wait for ranks that may never come. */
int PMI_Barrier(void)
{
    if (pmi.exchanged)
        return PMI_SUCCESS;
    pmi.exchanged = true;
    pmi.failure = exchange();
    if (pmi.failure == COLLRUN_OK)
        return PMI_SUCCESS;
    library_lose(pmi.library, "the ranks that started MPI together did not find each other");
    library_escape();
}

int PMI_Abort(int code, const char *message)
{
    (void)message; /* says nothing; the reason is on stderr */
    library_lose(pmi.library, "Open MPI gave up (code %d); what it said is in this rank's stderr",
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
    const char *found = card_find(&pmi.mine, key);
    for (const struct card *card = pmi.others; card && !found; card = card->next)
        found = card_find(card, key);
    pthread_mutex_unlock(&pmi.lock);
    if (!found || strlen(found) >= (size_t)len)
        return PMI_FAIL;
    snprintf(value, (size_t)len, "%s", found);
    return PMI_SUCCESS;
}
