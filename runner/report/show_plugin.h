/* SPDX-License-Identifier: Apache-2.0
 *
 * What `collrun describe` prints about one plugin.
 */
#ifndef RUNNER_REPORT_SHOW_PLUGIN_H
#define RUNNER_REPORT_SHOW_PLUGIN_H

#include "plan/describe.h"

#include <stdio.h>

void show_plugin(const struct described *what, FILE *out);
void show_plugin_json(const struct described *what, FILE *out);

#endif
