/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the page have in common.
 */
#include "html/page.h"

void page_section(const struct page *p, const char *id, const char *title)
{
    fprintf(p->out,
            "<section id=\"%s\" aria-labelledby=\"%s-title\">\n<h2 id=\"%s-title\">%s</h2>\n", id,
            id, id, title);
}
