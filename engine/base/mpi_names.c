/* SPDX-License-Identifier: Apache-2.0
 *
 * The predefined types of C and Fortran, by the names that MPI_Type_get_name gives them; behind
 * them those of torch.
 */
#include "base/mpi_names.h"

#include "base/c10d_functions.h"
#include "base/names.h"

#include <stdio.h>
#include <string.h>

/* ---- functions ---- */

#define MPI_NAMES_ROW(name, of, ...) [MPI_FN_##name] = {"MPI_" #name, of},

#define C10D_NAMES_ROW(name, of) [C10D_FN_##name] = {#name, of},

static const struct {
    const char *name;
    uint8_t kind;
} functions[C10D_FN_END] = {MPI_FUNCTIONS(MPI_NAMES_ROW, MPI_NAMES_ROW)
                                C10D_FUNCTIONS(C10D_NAMES_ROW)};

static bool mpi_function_is_c10d(unsigned function)
{
    return function > C10D_FN_FIRST && function < C10D_FN_END;
}

const char *mpi_function_name(unsigned function)
{
    return function && function < C10D_FN_END ? functions[function].name : "MPI";
}

unsigned mpi_function_kind(unsigned function)
{
    return function && function < C10D_FN_END ? functions[function].kind : RECORD_OPAQUE;
}

bool mpi_function_is_known(unsigned function)
{
    return function < C10D_FN_END;
}

unsigned c10d_function_find(const char *name)
{
    for (unsigned i = C10D_FN_FIRST + 1; i < C10D_FN_END; i++)
        if (strcmp(functions[i].name, name) == 0)
            return i;
    return 0;
}

/* ---- types ---- */

/* What the bits of an element are; in the number of the class, above the size in bytes. */
enum mpi_type_sort { BYTES = 1, SIGNED, UNSIGNED, REAL, COMPLEX, LOGICAL, PAIR, BRAIN, OTHER };

/* MPI_LONG_DOUBLE and its complex form have the size that they have here; pairs and what is unlike
 * any other have a number instead. */
static const struct mpi_type_row {
    const char *name;
    uint8_t sort, size;
} types[] = {
    {"", 0, 0},
    {"MPI_CHAR", BYTES, 1},
    {"MPI_SIGNED_CHAR", BYTES, 1},
    {"MPI_UNSIGNED_CHAR", BYTES, 1},
    {"MPI_BYTE", BYTES, 1},
    {"MPI_PACKED", BYTES, 1},
    {"MPI_INT8_T", BYTES, 1},
    {"MPI_UINT8_T", BYTES, 1},
    {"MPI_CHARACTER", BYTES, 1},
    {"MPI_INTEGER1", BYTES, 1},
    {"MPI_SHORT", SIGNED, 2},
    {"MPI_INT16_T", SIGNED, 2},
    {"MPI_INTEGER2", SIGNED, 2},
    {"MPI_INT", SIGNED, 4},
    {"MPI_INT32_T", SIGNED, 4},
    {"MPI_INTEGER", SIGNED, 4},
    {"MPI_INTEGER4", SIGNED, 4},
    {"MPI_WCHAR", SIGNED, 4},
    {"MPI_LONG", SIGNED, sizeof(long)},
    {"MPI_LONG_LONG", SIGNED, 8},
    {"MPI_LONG_LONG_INT", SIGNED, 8},
    {"MPI_INT64_T", SIGNED, 8},
    {"MPI_INTEGER8", SIGNED, 8},
    {"MPI_INTEGER16", SIGNED, 16},
    {"MPI_AINT", SIGNED, 8},
    {"MPI_OFFSET", SIGNED, 8},
    {"MPI_COUNT", SIGNED, 8},
    {"MPI_UNSIGNED_SHORT", UNSIGNED, 2},
    {"MPI_UINT16_T", UNSIGNED, 2},
    {"MPI_UNSIGNED", UNSIGNED, 4},
    {"MPI_UINT32_T", UNSIGNED, 4},
    {"MPI_UNSIGNED_LONG", UNSIGNED, sizeof(long)},
    {"MPI_UNSIGNED_LONG_LONG", UNSIGNED, 8},
    {"MPI_UINT64_T", UNSIGNED, 8},
    {"MPI_REAL2", REAL, 2},
    {"MPI_FLOAT", REAL, 4},
    {"MPI_REAL", REAL, 4},
    {"MPI_REAL4", REAL, 4},
    {"MPI_DOUBLE", REAL, 8},
    {"MPI_DOUBLE_PRECISION", REAL, 8},
    {"MPI_REAL8", REAL, 8},
    {"MPI_LONG_DOUBLE", REAL, sizeof(long double)},
    {"MPI_REAL16", REAL, 16},
    {"MPI_C_COMPLEX", COMPLEX, 8},
    {"MPI_C_FLOAT_COMPLEX", COMPLEX, 8},
    {"MPI_CXX_FLOAT_COMPLEX", COMPLEX, 8},
    {"MPI_CXX_COMPLEX", COMPLEX, 8},
    {"MPI_COMPLEX", COMPLEX, 8},
    {"MPI_COMPLEX8", COMPLEX, 8},
    {"MPI_C_DOUBLE_COMPLEX", COMPLEX, 16},
    {"MPI_CXX_DOUBLE_COMPLEX", COMPLEX, 16},
    {"MPI_DOUBLE_COMPLEX", COMPLEX, 16},
    {"MPI_COMPLEX16", COMPLEX, 16},
    {"MPI_C_LONG_DOUBLE_COMPLEX", COMPLEX, 32},
    {"MPI_CXX_LONG_DOUBLE_COMPLEX", COMPLEX, 32},
    {"MPI_COMPLEX32", COMPLEX, 32},
    {"MPI_C_BOOL", LOGICAL, 1},
    {"MPI_CXX_BOOL", LOGICAL, 1},
    {"MPI_LOGICAL", LOGICAL, 4},
    {"MPI_FLOAT_INT", PAIR, 1},
    {"MPI_DOUBLE_INT", PAIR, 2},
    {"MPI_LONG_INT", PAIR, 3},
    {"MPI_2INT", PAIR, 4},
    {"MPI_2INTEGER", PAIR, 4},
    {"MPI_SHORT_INT", PAIR, 5},
    {"MPI_LONG_DOUBLE_INT", PAIR, 6},
    {"MPI_2REAL", PAIR, 7},
    {"MPI_2DOUBLE_PRECISION", PAIR, 8},
    {"MPI_2COMPLEX", PAIR, 9},
    {"MPI_2DOUBLE_COMPLEX", PAIR, 10},
    {"uint8", BYTES, 1},
    {"int8", BYTES, 1},
    {"bool", BYTES, 1},
    {"int16", SIGNED, 2},
    {"int32", SIGNED, 4},
    {"int64", SIGNED, 8},
    {"uint16", UNSIGNED, 2},
    {"uint32", UNSIGNED, 4},
    {"uint64", UNSIGNED, 8},
    {"float16", REAL, 2},
    {"float32", REAL, 4},
    {"float64", REAL, 8},
    {"bfloat16", BRAIN, 2},
    {"float8_e4m3fn", BRAIN, 1},
    {"float8_e5m2", BRAIN, 3},
    {"complex64", COMPLEX, 8},
    {"complex128", COMPLEX, 16},
};
enum { MPI_TYPES = sizeof types / sizeof *types };
_Static_assert((unsigned)MPI_TYPES < (unsigned)MPI_TYPE_MIXED,
               "the number of a type has eight bits");

const char *mpi_type_name(unsigned type)
{
    return type < MPI_TYPES                   ? types[type].name
           : type == (unsigned)MPI_TYPE_MIXED ? "a derived type"
                                              : "";
}

unsigned mpi_type_find(const char *name)
{
    for (unsigned i = 1; i < MPI_TYPES; i++)
        if (strcmp(types[i].name, name) == 0)
            return i;
    return 0;
}

unsigned mpi_type_class(unsigned type)
{
    return type < MPI_TYPES ? (unsigned)types[type].sort << 8 | types[type].size
                            : (unsigned)OTHER << 8 | type;
}

unsigned mpi_type_bytes(unsigned type)
{
    return type < MPI_TYPES && types[type].sort != PAIR ? types[type].size : 0;
}

bool mpi_types_fit(unsigned sent, unsigned received)
{
    if (sent >= MPI_TYPES || received >= MPI_TYPES)
        return true;
    const struct mpi_type_row *a = &types[sent], *b = &types[received];
    const bool integers =
        (a->sort == SIGNED || a->sort == UNSIGNED) && (b->sort == SIGNED || b->sort == UNSIGNED);
    if (!a->sort || !b->sort || a->sort == BYTES || b->sort == BYTES)
        return true;
    return a->size == b->size && (integers || a->sort == b->sort);
}

/* ---- operators ---- */

static const char *const mpi_ops[] = {
    "",           "MPI_MAX",     "MPI_MIN",   "MPI_SUM",  "MPI_PROD", "MPI_LAND",
    "MPI_BAND",   "MPI_LOR",     "MPI_BOR",   "MPI_LXOR", "MPI_BXOR", "MPI_MINLOC",
    "MPI_MAXLOC", "MPI_REPLACE", "MPI_NO_OP", "SUM",      "AVG",      "PRODUCT",
    "MIN",        "MAX",         "BAND",      "BOR",      "BXOR"};

const char *mpi_op_name(unsigned op)
{
    if (op == OP_USER)
        return "an operator of the program";
    return op < sizeof mpi_ops / sizeof *mpi_ops ? mpi_ops[op] : "";
}

bool mpi_op_takes(unsigned op, unsigned type)
{
    enum { MAX_MIN = 2, SUM_PROD = 4, MINLOC = 11, MAXLOC = 12 };
    const bool logical = op == 5 || op == 7 || op == 9, bits = op == 6 || op == 8 || op == 10;
    const unsigned sort = type < MPI_TYPES ? types[type].sort : 0;
    const bool pairs = op == MINLOC || op == MAXLOC;
    if (!op || op == OP_USER || !sort)
        return true;
    if (op > MAXLOC) /* MPI_REPLACE, MPI_NO_OP */
        return false;
    switch (sort) {
    case PAIR:
        return pairs;
    case LOGICAL:
        return logical;
    case COMPLEX:
        return op > MAX_MIN && op <= SUM_PROD;
    case REAL:
        return op <= SUM_PROD;
    default:
        return !pairs && (op <= SUM_PROD || logical || bits);
    }
}

unsigned mpi_op_find(const char *name)
{
    for (unsigned i = 1; i < sizeof mpi_ops / sizeof *mpi_ops; i++)
        if (strcmp(mpi_ops[i], name) == 0)
            return i;
    return 0;
}

/* ---- calls ---- */

static void mpi_call_add(char *out, size_t len, const char *text)
{
    const size_t used = strlen(out);
    if (used + 1 < len)
        snprintf(out + used, len - used, "%s%s", used && out[used - 1] != '(' ? ", " : "", text);
}

static void mpi_call_add_rank(char *out, size_t len, const char *what, int rank)
{
    char text[40];
    if (rank < 0 && strcmp(what, "src") == 0)
        snprintf(text, sizeof text, "src=None");
    else if (rank < 0)
        snprintf(text, sizeof text, "%s=MPI_ANY_SOURCE", what);
    else
        snprintf(text, sizeof text, "%s=%d", what, rank);
    mpi_call_add(out, len, text);
}

static void mpi_call_add_message(const struct mpi_call *call, unsigned kind, char *out, size_t len)
{
    char tag[40] = "tag=MPI_ANY_TAG";
    if (call->tag != COLLRUN_ANY_TAG)
        snprintf(tag, sizeof tag, "tag=%u", call->tag);
    mpi_call_add_rank(
        out, len, kind == (unsigned)COLLRUN_SEND && call->op != MPI_RECEIVES ? "dest" : "source",
        call->root_or_peer);
    mpi_call_add(out, len, tag);
}

/* "all_reduce(numel=4, float32, SUM)", "broadcast(numel=4, float32, src=0)", "send(numel=4,
 * float32, dst=1, tag=3)": src and dst are ranks of the process group. */
static void c10d_call_text(const struct mpi_call *call, char *out, size_t len)
{
    const enum collrun_kind kind = (enum collrun_kind)mpi_function_kind(call->function);
    const bool to = kind == COLLRUN_REDUCE || kind == COLLRUN_GATHER || kind == COLLRUN_SEND;
    char text[40];
    snprintf(out, len, "%s(", mpi_function_name(call->function));
    snprintf(text, sizeof text, "numel=%llu", (unsigned long long)call->count);
    if (call->count && kind != COLLRUN_BARRIER)
        mpi_call_add(out, len, text);
    if (*mpi_type_name(call->type))
        mpi_call_add(out, len, mpi_type_name(call->type));
    if (*mpi_op_name(call->op))
        mpi_call_add(out, len, mpi_op_name(call->op));
    if (collrun_kind_has_root(kind) || collrun_kind_is_message(kind))
        mpi_call_add_rank(out, len, to ? "dst" : "src", call->root_or_peer);
    snprintf(text, sizeof text, "tag=%u", call->tag);
    if (call->tag && collrun_kind_is_message(kind))
        mpi_call_add(out, len, text);
    const size_t used = strlen(out);
    if (used + 1 < len)
        snprintf(out + used, len - used, ")");
}

void mpi_call_text(const struct mpi_call *call, char *out, size_t len)
{
    if (mpi_function_is_c10d(call->function)) {
        c10d_call_text(call, out, len);
        return;
    }
    const unsigned kind = mpi_function_kind(call->function);
    const bool message =
        collrun_kind_is_message((enum collrun_kind)kind) || kind == (unsigned)RECORD_PROBE;
    const bool data = kind < COLLRUN_KIND_COUNT && kind != (unsigned)COLLRUN_BARRIER;
    char count[40];
    snprintf(out, len, "%s(", mpi_function_name(call->function));
    snprintf(count, sizeof count, "count=%llu", (unsigned long long)call->count);
    if (data && !collrun_kind_is_vector((enum collrun_kind)kind))
        mpi_call_add(out, len, count);
    if (data && *mpi_type_name(call->type))
        mpi_call_add(out, len, mpi_type_name(call->type));
    if (collrun_kind_reduces((enum collrun_kind)kind))
        mpi_call_add(out, len, mpi_op_name(call->op));
    if (collrun_kind_has_root((enum collrun_kind)kind) && call->root_or_peer >= 0)
        mpi_call_add_rank(out, len, "root", call->root_or_peer);
    if (message)
        mpi_call_add_message(call, kind, out, len);
    const size_t used = strlen(out);
    if (used + 1 < len)
        snprintf(out + used, len - used, ")");
}

void mpi_call_text_numbered(const struct mpi_call *call, const char *comm, uint64_t number,
                            char *out, size_t len)
{
    char text[MPI_CALL_TEXT_LEN];
    const enum collrun_kind kind = (enum collrun_kind)mpi_function_kind(call->function);
    mpi_call_text(call, text, sizeof text);
    /* A process group without a description is called "group 3". */
    const bool named = mpi_function_is_c10d(call->function) && strncmp(comm, "group ", 6) != 0;
    snprintf(out, len, "%s, %s %llu of %s%s", text,
             collrun_kind_is_message(kind) ? "message" : "operation", (unsigned long long)number,
             named ? "process group " : "", comm);
}
