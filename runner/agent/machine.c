/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/machine.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool machine_read_line(const char *path, char *line, size_t size)
{
    FILE *f = fopen(path, "re");
    bool got = f && fgets(line, (int)size, f);
    if (f)
        fclose(f);
    line[got ? strcspn(line, "\n") : 0] = '\0';
    return got;
}

/* FNV-1a of each card's address, added up, since the order of a folder may differ. Interfaces
 * without a device (bridges, tunnels, containers) come and go. */
static uint64_t machine_hash_cards(const char *net)
{
    char path[512], address[64];
    uint64_t sum = 0;
    DIR *folder = opendir(net);
    for (struct dirent *e; folder && (e = readdir(folder));) {
        snprintf(path, sizeof path, "%s/%s/device", net, e->d_name);
        if (e->d_name[0] == '.' || access(path, F_OK) < 0)
            continue;
        snprintf(path, sizeof path, "%s/%s/address", net, e->d_name);
        uint64_t hash = 0xcbf29ce484222325u;
        if (!machine_read_line(path, address, sizeof address))
            continue;
        for (const char *p = address; *p; p++)
            hash = (hash ^ (unsigned char)*p) * 0x100000001b3u;
        sum += hash;
    }
    if (folder)
        closedir(folder);
    return sum;
}

void machine_name(const char *boot_id, const char *net, char *out, size_t size)
{
    char boot[64];
    struct stat ns;
    out[0] = '\0';
    if (!machine_read_line(boot_id, boot, sizeof boot) || stat("/proc/self/ns/net", &ns) < 0)
        return;
    snprintf(out, size, "%s/%ju/%016" PRIx64, boot, (uintmax_t)ns.st_ino, machine_hash_cards(net));
}
