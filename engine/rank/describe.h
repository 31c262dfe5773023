/* SPDX-License-Identifier: Apache-2.0
 *
 * `collrun-engine --describe KIND:PATH...`: the descriptions of plugins, one JSON object per
 * argument and line, in order. Each is flushed before the next plugin is loaded: if a plugin kills
 * the process, its line is missing. The runner calls this and never loads a plugin itself.
 *
 *   {"kind":"backend","path":P,"name":N,"version":V,"abi":1,"available":true,"reason":"","flags":["one_host"],
 *    "operations":{"barrier":"native","gather":"emulated","recv_any":"unsupported",...all 17},
 *    "memory":["host","device"],"memory_kind":{"name":N,"title":T,"mask":V|null,"gpus":true,"declares":true}}
 *   {"kind":"workload","path":P,"name":N,"summary":S,
 *    "params":[{"name":N,"type":"string|int|float|bool|size|duration|enum","default":D|null,"min":M|null,"max":M|null,
 *               "choices":"a|b"|null,"help":H}],"check":true}
 *   {"kind":K,"path":P,"error":"message","hint":"or empty"}
 */
#ifndef ENGINE_RANK_DESCRIBE_H
#define ENGINE_RANK_DESCRIBE_H

#include <stdio.h>

/* Every argument is "backend:/path" or "workload:/path". Returns the exit code: 0, or 2 if an
 * argument is neither; no plugin is loaded then. */
int describe_plugins(char *const *args, int nargs, FILE *out);

/* Writes `before`, then "key":"text"; null for a NULL text. The engine has no JSON library, since
 * it links only libc. Bytes that are no UTF-8 are replaced: strings of plugins may hold any. */
void json_put_member(FILE *out, const char *before, const char *key, const char *text);

/* ---- devices ---- */

/* collrun-engine --devices PATH: prints the devices of this machine that belong to the kind of
 * memory which a backend declares, as base/devices.h defines the lines. Runner and agent start it,
 * since they never load a backend. */

/* Returns the exit code. A backend that cannot be loaded is a `reason` in the output. */
int devices_print(const char *path, FILE *out);

/* `collrun-engine --check INDEX...`: calls the `check` of workloads with the parameters of each of
 * their ranks. stdin is the encoded job (base/desc.h), the arguments are indices of its workloads.
 * One JSON object per line, flushed at once:
 *
 *   {"workload":0,"rank":3,"param":"bytes"|null,"error":"message"}
 *   {"workload":0,"done":true}
 *
 * A rank that is refused for the same reason and the same text of job.yaml as the last one has no
 * line; after 20 lines the other ranks of the workload are not checked. */

/* Returns the exit code: 0, or 2 if the arguments or the job are malformed. */
int check_workloads(char *const *args, int nargs, FILE *in, FILE *out);

#endif
