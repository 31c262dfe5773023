/* SPDX-License-Identifier: Apache-2.0
 *
 * The main of a fuzz target where libFuzzer has none, as in a build with gcc: runs each file, or
 * each of a folder, once. So the kept inputs are tests under any compiler and sanitizer.
 *
 * usage: fuzz_X FILE|FOLDER...
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv);

static int main_run_file(const char *path)
{
    FILE *f = fopen(path, "re");
    uint8_t *data = NULL;
    long len = -1;
    if (f && fseek(f, 0, SEEK_END) == 0 && (len = ftell(f)) >= 0)
        data = malloc((size_t)len + !len);
    const int good =
        data && fseek(f, 0, SEEK_SET) == 0 && fread(data, 1, (size_t)len, f) == (size_t)len;
    if (good)
        LLVMFuzzerTestOneInput(data, (size_t)len);
    else
        perror(path);
    if (f)
        fclose(f);
    free(data);
    return good ? 0 : 1;
}

static int main_run(const char *path)
{
    char file[4096];
    const struct dirent *entry;
    int status = 0;
    DIR *dir = opendir(path);
    while (dir && (entry = readdir(dir))) {
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.')
            status |= main_run_file(file);
    }
    if (dir)
        closedir(dir);
    return dir ? status : main_run_file(path);
}

int main(int argc, char **argv)
{
    int status = 0;
    if (LLVMFuzzerInitialize)
        LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++)
        status |= main_run(argv[i]);
    return status;
}
