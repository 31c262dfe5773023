/* SPDX-License-Identifier: Apache-2.0
 *
 * The structs of DLPack, by which array libraries exchange memory: the layout of versions 0.x
 * (capsules named "dltensor") and 1.x ("dltensor_versioned"). The layout is that of
 * https://dmlc.github.io/dlpack/latest/c_api.html. A consumer that takes a capsule renames it
 * ("used_dltensor") and calls `deleter` once.
 */
#ifndef PYTHON_DLPACK_H
#define PYTHON_DLPACK_H

#include <stdint.h>

#define DLPACK_NAME "dltensor"
#define DLPACK_NAME_USED "used_dltensor"
#define DLPACK_NAME_VERSIONED "dltensor_versioned"
#define DLPACK_NAME_VERSIONED_USED "used_dltensor_versioned"

enum { DLPACK_MAJOR = 1, DLPACK_READ_ONLY = 1 };

enum dlpack_device_type {
    DLPACK_CPU = 1,
    DLPACK_CUDA = 2,
    DLPACK_CUDA_HOST = 3,
    DLPACK_ROCM = 10,
    DLPACK_ROCM_HOST = 11,
    DLPACK_EXTENSION = 12, /* a device that DLPack has no name for */
    DLPACK_CUDA_MANAGED = 13
};

enum dlpack_code {
    DLPACK_INT = 0,
    DLPACK_UINT = 1,
    DLPACK_FLOAT = 2,
    DLPACK_BFLOAT = 4,
    DLPACK_BOOL = 6
};

struct dlpack_device {
    int32_t type; /* enum dlpack_device_type */
    int32_t id;
};

struct dlpack_dtype {
    uint8_t code; /* enum dlpack_code */
    uint8_t bits;
    uint16_t elements; /* of one item: more than 1 in vector types */
};

struct dlpack_tensor {
    void *data;
    struct dlpack_device device;
    int32_t ndim;
    struct dlpack_dtype dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: packed, the last axis first */
    uint64_t byte_offset;
};

struct dlpack_managed {
    struct dlpack_tensor tensor;
    void *context;
    void (*deleter)(struct dlpack_managed *self);
};

struct dlpack_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dlpack_versioned *self);
    uint64_t flags;
    struct dlpack_tensor tensor;
};

#endif
