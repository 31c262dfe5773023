/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: engine/core/match.c, through what backends get of it, against a list that is
 * searched from its oldest end, as the rules read. Three bytes are one step: a receive is posted, a
 * message arrives, a receive asks what it would get, or one is withdrawn.
 */
#include "core/match.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

enum { FUZZ_MOST = 256, FUZZ_SOURCES = 8 };

struct fuzz_item {
    uint32_t source, tag;
    bool queued;
};

struct fuzz_list {
    struct fuzz_item items[FUZZ_MOST];
    unsigned n;
};

struct fuzz_model {
    struct collrun_match *match;
    struct fuzz_list receives, messages; /* in the order of the calls */
};

static void fuzz_must(bool holds)
{
    if (!holds)
        abort();
}

static bool fuzz_fits(const struct fuzz_item *receive, const struct fuzz_item *message)
{
    const bool source = receive->source == COLLRUN_ANY_SOURCE || receive->source == message->source;
    const bool any = receive->tag == COLLRUN_ANY_TAG && message->tag < COLLRUN_ENGINE_TAG;
    return source && (any || receive->tag == message->tag);
}

/* The oldest message of a receive, or the oldest receive of a message; NULL: none. */
static struct fuzz_item *fuzz_oldest(struct fuzz_list *list, const struct fuzz_item *of,
                                     bool receives)
{
    for (unsigned i = 0; i < list->n; i++) {
        struct fuzz_item *item = &list->items[i];
        if (item->queued && (receives ? fuzz_fits(item, of) : fuzz_fits(of, item)))
            return item;
    }
    return NULL;
}

static struct fuzz_item fuzz_item_of(const uint8_t *step, bool receives)
{
    static const uint32_t tags[] = {
        0, 1, 2, 3, 7, COLLRUN_ENGINE_TAG - 1, COLLRUN_ENGINE_TAG, COLLRUN_ENGINE_TAG + 1};
    const uint32_t source = step[1] % (FUZZ_SOURCES + 1);
    struct fuzz_item item = {.source = source % FUZZ_SOURCES, .tag = tags[step[2] % 8]};
    if (receives && source == FUZZ_SOURCES)
        item.source = COLLRUN_ANY_SOURCE;
    if (receives && (step[2] & 0x60) == 0x60)
        item.tag = COLLRUN_ANY_TAG;
    return item;
}

static void fuzz_add(struct fuzz_model *m, const uint8_t *step, bool receives)
{
    struct fuzz_list *own = receives ? &m->receives : &m->messages;
    if (own->n == FUZZ_MOST)
        return;
    struct fuzz_item *item = &own->items[own->n++];
    *item = fuzz_item_of(step, receives);
    struct fuzz_item *want = fuzz_oldest(receives ? &m->messages : &m->receives, item, !receives);
    void *found = NULL;
    const int status = (receives ? match_ops.post : match_ops.arrive)(m->match, item->source,
                                                                      item->tag, item, &found);
    fuzz_must(status == COLLRUN_OK && found == want);
    item->queued = !want;
    if (want)
        want->queued = false;
}

static void fuzz_probe(struct fuzz_model *m, const uint8_t *step)
{
    const struct fuzz_item receive = fuzz_item_of(step, true);
    fuzz_must(match_ops.probe(m->match, receive.source, receive.tag) ==
              fuzz_oldest(&m->messages, &receive, false));
}

static void fuzz_withdraw(struct fuzz_model *m, const uint8_t *step)
{
    if (m->receives.n == 0)
        return;
    struct fuzz_item *receive =
        &m->receives.items[(unsigned)(step[1] | step[2] << 8) % m->receives.n];
    const int status = match_ops.withdraw(m->match, receive->source, receive->tag, receive);
    fuzz_must((status == COLLRUN_OK) == receive->queued);
    receive->queued = false;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static struct fuzz_model m;
    m.match = match_ops.open();
    fuzz_must(m.match);
    m.receives.n = m.messages.n = 0;
    for (; len >= 3; bytes += 3, len -= 3) {
        if (bytes[0] % 4 < 2)
            fuzz_add(&m, bytes, bytes[0] % 4 == 0);
        else if (bytes[0] % 4 == 2)
            fuzz_probe(&m, bytes);
        else
            fuzz_withdraw(&m, bytes);
    }
    match_ops.close(m.match, NULL);
    return 0;
}
