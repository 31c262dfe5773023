/* SPDX-License-Identifier: Apache-2.0
 *
 * `collrun-engine --describe KIND:PATH...`: what plugins say about themselves, one JSON object per
 * argument and line, in order, each flushed before the next plugin is loaded, so that a plugin that
 * kills the process is known by the line that is missing. The runner runs this instead of loading
 * anybody's code itself.
 *
 *   {"kind":"backend","path":P,"name":N,"version":V,"abi":1,"available":true,"reason":"","flags":["one_host"],
 *    "operations":{"barrier":"native","gather":"emulated","recv_any":"unsupported",...all 17}}
 *   {"kind":"workload","path":P,"name":N,"summary":S,
 *    "params":[{"name":N,"type":"string|int|float|bool|size|duration","default":D|null,"min":M|null,"max":M|null,"help":H}]}
 *   {"kind":K,"path":P,"error":"one sentence","hint":"or empty"}
 */
#ifndef ENGINE_DESCRIBE_H
#define ENGINE_DESCRIBE_H

#include <stdio.h>

/* Every argument is "backend:/path" or "workload:/path". Returns the exit code: 0, or 2 if one is
 * neither (nothing is loaded then). */
int describe_plugins(char *const *args, int nargs, FILE *out);

#endif
