/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPUs of a host: by the stand-in NVML, by a copy of /proc/driver/nvidia, or none.
 */
#include "../../backends/nccl/devices.h"

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

static char folder[] = "/tmp/gpus.XXXXXX";
static char why[512];
static struct collrun_device found[4];

/* $BUILD/tests/test_nccl_devices -> $BUILD/tests/fake/NAME */
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

static int open_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int close_folder(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static int find(uint32_t max)
{
    char proc[64], sys[64];
    snprintf(proc, sizeof proc, "%s/proc", folder);
    snprintf(sys, sizeof sys, "%s/sys", folder);
    memset(found, 0, sizeof found);
    return devices_find(&(struct devices_folders){proc, sys}, found, max, why, sizeof why);
}

static void nvml_lists_the_gpus_regardless_of_the_mask(void **state)
{
    (void)state;
    use_nvml("libnvidia-ml.so.1");
    setenv("FAKE_CUDA_DEVICES", "3", 1);
    setenv("FAKE_NVML_NUMA", "0", 1);
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    assert_int_equal(find(4), 3);
    assert_string_equal(found[2].id, UUID "2");
    assert_string_equal(found[2].model, "stand-in GPU");
    assert_true(found[0].cpus[0] == '0');
    assert_string_equal(why, "");
    assert_int_equal(find(2), 3); /* more than there is room for */
    assert_string_equal(found[1].id, UUID "1");
    assert_string_equal(found[2].id, "");
    setenv("FAKE_CUDA_DEVICES", "0", 1);
    assert_int_equal(find(4), 0);
    assert_string_equal(why, "NVML lists none");
    unsetenv("FAKE_CUDA_DEVICES");
    unsetenv("CUDA_VISIBLE_DEVICES");
    setenv("FAKE_CUDA_NO_DRIVER", "1", 1);
    assert_int_equal(find(4), 0);
    assert_string_equal(why, "NVML: NVIDIA driver is not loaded");
    unsetenv("FAKE_CUDA_NO_DRIVER");
}

static void without_nvml_the_kernel_driver_lists_them(void **state)
{
    (void)state;
    use_nvml("there-is-none.so");
    assert_int_equal(find(4), 0);
    assert_non_null(strstr(why, "there-is-none.so"));
    use_nvml("libcudart.so.13"); /* a library, but not NVML */
    assert_int_equal(find(4), 0);
    assert_non_null(strstr(why, "lacks nvmlInit_v2"));
    write_file("proc/gpus/0000:c1:00.0/information",
               "Model: \t\t NVIDIA T4\nIRQ:   \t\t 300\nGPU UUID: \t GPU-c1\nBus Location: "
               "0000:c1:00.0\n");
    write_file("proc/gpus/0000:07:00.0/information",
               "Model: \t\t NVIDIA A100\nGPU UUID: \t GPU-07\n");
    write_file("sys/bus/pci/devices/0000:07:00.0/local_cpulist", "0-15,32-47\n");
    assert_int_equal(find(4), 2); /* by PCI address */
    assert_string_equal(found[0].id, "GPU-07");
    assert_string_equal(found[0].model, "NVIDIA A100");
    assert_string_equal(found[0].cpus, "0-15,32-47");
    assert_string_equal(found[1].id, "GPU-c1");
    assert_string_equal(found[1].cpus, "");
    assert_string_equal(why, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nvml_lists_the_gpus_regardless_of_the_mask),
        cmocka_unit_test(without_nvml_the_kernel_driver_lists_them),
    };
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
