/* SPDX-License-Identifier: Apache-2.0
 *
 * The one thing that libcollrun exports beside its documented interface: the body of the program
 * collrun-engine.
 */
#ifndef ENGINE_RANK_ENTRY_H
#define ENGINE_RANK_ENTRY_H

/* `collrun-engine` runs the rank whose control connection is descriptor 3; for `--describe` see
 * describe.h. Returns the exit code. */
__attribute__((visibility("default"))) int collrun_engine_main(int argc, char **argv);

#endif
