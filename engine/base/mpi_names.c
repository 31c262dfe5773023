/* SPDX-License-Identifier: Apache-2.0
 *
 * The predefined types of C and Fortran, by the names that MPI_Type_get_name gives them.
 */
#include "base/mpi_names.h"

#include "base/names.h"

#include <stdio.h>
#include <string.h>

/* ---- functions ---- */

#define MPI_NAMES_ROW(name, of, ...) [MPI_FN_##name] = {"MPI_" #name, of},

static const struct {
    const char *name;
    uint8_t kind;
} functions[MPI_FN_COUNT] = {MPI_FUNCTIONS(MPI_NAMES_ROW, MPI_NAMES_ROW)};

const char *mpi_function_name(unsigned function)
{
    return function && function < MPI_FN_COUNT ? functions[function].name : "MPI";
}

unsigned mpi_function_kind(unsigned function)
{
    return function && function < MPI_FN_COUNT ? functions[function].kind : RECORD_OPAQUE;
}

/* ---- types ---- */

/* What the bits of an element are; in the number of the class, above the size in bytes. */
enum mpi_type_sort { BYTES = 1, SIGNED, UNSIGNED, REAL, COMPLEX, LOGICAL, PAIR, OTHER };

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

static const char *const mpi_ops[] = {"",           "MPI_MAX",     "MPI_MIN",  "MPI_SUM",
                                      "MPI_PROD",   "MPI_LAND",    "MPI_BAND", "MPI_LOR",
                                      "MPI_BOR",    "MPI_LXOR",    "MPI_BXOR", "MPI_MINLOC",
                                      "MPI_MAXLOC", "MPI_REPLACE", "MPI_NO_OP"};

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
    if (rank < 0)
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

void mpi_call_text(const struct mpi_call *call, char *out, size_t len)
{
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
    snprintf(out, len, "%s, %s %llu of %s", text,
             collrun_kind_is_message(kind) ? "message" : "operation", (unsigned long long)number,
             comm);
}
