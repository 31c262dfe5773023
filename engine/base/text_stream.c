/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text_stream.h"

#include "base/arena.h"

#include <errno.h>
#include <stdlib.h>

FILE *text_stream_open(char **text, size_t *len)
{
    *text = NULL;
    *len = 0;
    errno = 0;
    return memory_checked(open_memstream(text, len));
}

bool text_stream_close(FILE *stream, char **text)
{
    bool whole = stream && !ferror(stream);
    whole = stream && fclose(stream) == 0 && whole && *text && errno != ENOMEM;
    if (whole)
        return true;
    if (stream)
        memory_lacking();
    free(*text);
    *text = NULL;
    return false;
}
