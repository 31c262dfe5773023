/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding GPUs: by the stand-in NVML, by a copy of /proc/driver/nvidia, or not at all; and the
 * pools that CUDA_VISIBLE_DEVICES leaves.
 */
#include "base/gpus.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define UUID "GPU-fa4e0000-0000-4000-8000-00000000000"

static struct arena arena;
static char folder[] = "/tmp/gpus.XXXXXX";

/* $BUILD/tests/test_gpus -> $BUILD/tests/fake/NAME */
static void use_nvml(const char *name)
{
    char path[4200] = "";
    ssize_t n = readlink("/proc/self/exe", path, 4000);
    assert_true(n > 0);
    snprintf(strrchr(path, '/'), 200, "/fake/%s", name);
    setenv("COLLRUN_LIBNVML", path, 1);
}

static void write_file(const char *path, const char *text)
{
    char whole[256];
    snprintf(whole, sizeof whole, "%s/%s", folder, path);
    for (char *slash = strchr(whole + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(whole, 0755);
        *slash = '/';
    }
    FILE *f = fopen(whole, "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int open_all(void **state)
{
    (void)state;
    arena_init(&arena);
    return mkdtemp(folder) ? 0 : -1;
}

static int close_all(void **state)
{
    char command[64];
    (void)state;
    arena_fini(&arena);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static struct gpus find(void)
{
    struct gpus found;
    struct diag d;
    char proc[64], sys[64];
    snprintf(proc, sizeof proc, "%s/proc", folder);
    snprintf(sys, sizeof sys, "%s/sys", folder);
    assert_int_equal(gpus_find(&found, proc, sys, &arena, &d), 0);
    return found;
}

static void test_nvml(void **state)
{
    (void)state;
    use_nvml("libnvidia-ml.so.1");
    setenv("FAKE_CUDA_DEVICES", "3", 1);
    setenv("FAKE_NVML_NUMA", "0", 1);
    setenv("CUDA_VISIBLE_DEVICES", "1", 1); /* not its business */
    struct gpus found = find();
    assert_int_equal(found.n, 3);
    assert_string_equal(found.items[2].uuid, UUID "2");
    assert_string_equal(found.items[2].name, "stand-in GPU");
    assert_true(found.items[0].cpus[0] == '0');
    assert_string_equal(gpus_text(&found, &arena), "3 x stand-in GPU");
    setenv("FAKE_CUDA_DEVICES", "0", 1);
    found = find();
    assert_int_equal(found.n, 0);
    assert_string_equal(gpus_text(&found, &arena), "none (NVML lists none)");
    unsetenv("FAKE_CUDA_DEVICES");
    unsetenv("CUDA_VISIBLE_DEVICES");
    setenv("FAKE_CUDA_NO_DRIVER", "1", 1);
    found = find();
    assert_string_equal(gpus_text(&found, &arena), "none (NVML: NVIDIA driver is not loaded)");
    unsetenv("FAKE_CUDA_NO_DRIVER");
}

static void test_kernel_driver(void **state)
{
    (void)state;
    use_nvml("there-is-none.so");
    struct gpus found = find();
    assert_int_equal(found.n, 0);
    assert_non_null(strstr(found.reason, "there-is-none.so"));
    use_nvml("libcudart.so.13"); /* a library, and not this one */
    assert_non_null(strstr(find().reason, "lacks nvmlInit_v2"));
    write_file("proc/gpus/0000:c1:00.0/information",
               "Model: \t\t NVIDIA T4\nIRQ:   \t\t 300\nGPU UUID: \t GPU-c1\nBus Location: "
               "0000:c1:00.0\n");
    write_file("proc/gpus/0000:07:00.0/information",
               "Model: \t\t NVIDIA A100\nGPU UUID: \t GPU-07\n");
    write_file("sys/bus/pci/devices/0000:07:00.0/local_cpulist", "0-15,32-47\n");
    found = find();
    assert_int_equal(found.n, 2); /* by PCI address */
    assert_string_equal(found.items[0].uuid, "GPU-07");
    assert_string_equal(found.items[0].cpus, "0-15,32-47");
    assert_string_equal(found.items[1].uuid, "GPU-c1");
    assert_string_equal(found.items[1].cpus, "");
    assert_string_equal(gpus_text(&found, &arena), "2 (NVIDIA A100, NVIDIA T4)");
}

/* The last characters of the UUIDs in a pool. */
static const char *pool(const struct gpus *all, const char *mask)
{
    static char text[32];
    struct gpus out;
    struct diag d;
    assert_int_equal(gpus_pool(all, mask, &arena, &out, &d), 0);
    memset(text, 0, sizeof text);
    for (uint32_t i = 0; i < out.n; i++)
        text[i] = out.items[i].uuid[strlen(out.items[i].uuid) - 1];
    return text;
}

static void test_pools(void **state)
{
    (void)state;
    use_nvml("libnvidia-ml.so.1");
    struct gpus all = find();
    assert_string_equal(pool(&all, NULL), "01234567");
    assert_string_equal(pool(&all, "6,0"), "60");
    assert_string_equal(pool(&all, " 3 , " UUID "5"), "35");
    assert_string_equal(pool(&all, UUID "4,1"), "41");
    assert_string_equal(pool(&all, "2,8,1"), "2"); /* what names none ends it */
    assert_string_equal(pool(&all, "2,-1,1"), "2");
    assert_string_equal(pool(&all, "2,x,1"), "2");
    assert_string_equal(pool(&all, ""), "");
    assert_string_equal(pool(&all, "NoDevFiles"), "");
    assert_string_equal(pool(&all, "2,GPU-fa4e,1"), "2"); /* the beginning of all of them */
    assert_string_equal(pool(&all, "2,1," UUID "2"), ""); /* twice: CUDA shows none */
}

/* What is missing is explained, as far as the mask is to blame. */
static void test_reasons(void **state)
{
    static const struct {
        const char *mask, *reason;
    } cases[] = {
        {NULL, ""},
        {"7,6,5,4,3,2,1,0", ""},
        {"", "CUDA_VISIBLE_DEVICES= leaves none of 8"},
        {"9", "CUDA_VISIBLE_DEVICES=9 leaves none of 8: \"9\" names none"},
        {"3", "CUDA_VISIBLE_DEVICES=3 leaves 1 of 8"},
        {"0,GPU-dead,1",
         "CUDA_VISIBLE_DEVICES=0,GPU-dead,1 leaves 1 of 8: \"GPU-dead\" names none"},
        {"1,1", "CUDA_VISIBLE_DEVICES=1,1 leaves none of 8: \"1\" comes twice, and CUDA then shows "
                "none"},
        {"GPU-fa4e", "CUDA_VISIBLE_DEVICES=GPU-fa4e leaves none of 8: \"GPU-fa4e\" names several"},
        {"MIG-1/2", "CUDA_VISIBLE_DEVICES=MIG-1/2 leaves none of 8: \"MIG-1/2\" is part of a GPU, "
                    "and collrun hands out whole ones"},
    };
    (void)state;
    use_nvml("libnvidia-ml.so.1");
    struct gpus all = find(), out;
    struct diag d;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(gpus_pool(&all, cases[i].mask, &arena, &out, &d), 0);
        assert_string_equal(out.reason, cases[i].reason);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nvml), cmocka_unit_test(test_kernel_driver),
        cmocka_unit_test(test_pools), cmocka_unit_test(test_reasons)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
