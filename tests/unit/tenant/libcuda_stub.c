/* As much of the CUDA driver as a tenant calls: one GPU without the GPU, whose memory is the host's.
 *
 * STUB_NAME is the device's name. A kernel takes as many arguments as the digit at the end of its name says; PTX with the
 * word `broken` does not compile. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { OK = 0, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, INVALID_PTX = 218, INVALID_RESOURCE = 914 };

static __thread void *current;
static uint64_t used;
static unsigned last_first, last_count;

/* What a test looks at. */
int contexts_retained, launches;
uint64_t launched_arguments[9];
unsigned launched_extents[6];
void *launched_stream;

enum { TOTAL = 1 << 20 };

#define NEEDS_CONTEXT() do { if (!current) return INVALID_CONTEXT; } while (0)

int cuInit(unsigned flags) { return flags; }
int cuDriverGetVersion(int *version) { *version = 13020; return OK; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return OK; }
int cuDeviceGetName(char *name, int length, int device)
{
    const char *text = getenv("STUB_NAME");
    (void)device;
    snprintf(name, length, "%s", text ? text : "NVIDIA Stub");
    return OK;
}
int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
    for (int i = 0; i < 16; i++) uuid[i] = 0xa0 + i + device;
    return OK;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = attribute == 16 ? 132 + device : -1; return OK; }
int cuDevicePrimaryCtxRetain(void **context, int device)
{
    (void)device;
    contexts_retained++;
    *context = &used;
    return OK;
}
int cuCtxSetCurrent(void *context) { current = context; return OK; }
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    NEEDS_CONTEXT();
    *free_bytes = TOTAL - used;
    *total_bytes = TOTAL;
    return OK;
}
int cuMemAlloc_v2(uint64_t *pointer, size_t bytes)
{
    NEEDS_CONTEXT();
    if (bytes > TOTAL - used) return OUT_OF_MEMORY;
    /* Of malloc, addresses of a Python that is not position-independent, as Debian's, may have 32 bits. */
    size_t *block = mmap(NULL, bytes + sizeof *block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *block = bytes;
    /* The driver clears nothing. */
    memset(block + 1, 0xA5, bytes);
    used += bytes;
    *pointer = (uint64_t)(block + 1);
    return OK;
}
int cuMemFree_v2(uint64_t pointer)
{
    size_t *block = (size_t *)pointer - 1;
    used -= *block;
    munmap(block, *block + sizeof *block);
    return OK;
}
int cuMemsetD8_v2(uint64_t pointer, unsigned char value, size_t bytes) { memset((void *)pointer, value, bytes); return OK; }
int cuMemsetD32_v2(uint64_t pointer, unsigned value, size_t count)
{
    for (size_t i = 0; i < count; i++) ((unsigned *)pointer)[i] = value;
    return OK;
}
int cuCtxSynchronize(void) { NEEDS_CONTEXT(); return OK; }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) { memcpy(to, (void *)from, bytes); return OK; }
int cuModuleLoadDataEx(void **module, const char *image, unsigned count, int *options, void **values)
{
    NEEDS_CONTEXT();
    if (strstr(image, "broken")) {
        for (unsigned i = 0; i + 1 < count; i++)
            if (options[i] == 5 && options[i + 1] == 6)
                snprintf(values[i], (size_t)values[i + 1], "ptxas: syntax error");
        return INVALID_PTX;
    }
    *module = &used;
    return OK;
}
int cuModuleGetFunction(void **function, void *module, const char *name)
{
    int digit = name[strlen(name) - 1] - '0';
    (void)module;
    *function = (void *)(intptr_t)(0x7f0000000000 + (digit >= 0 && digit <= 9 ? digit : 0));
    return OK;
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra)
{
    unsigned extents[6] = {gx, gy, gz, bx, by, bz};
    int count = (int)((intptr_t)function - 0x7f0000000000);
    NEEDS_CONTEXT();
    if (shared || extra) return INVALID_PTX;
    for (int i = 0; i < count; i++) launched_arguments[i] = *(uint64_t *)arguments[i];
    memcpy(launched_extents, extents, sizeof extents);
    launched_stream = stream;
    /* The kernel that notes where it runs. */
    if (count == 2 && bx == 1) memset((char *)launched_arguments[0] + last_first, 1, last_count);
    launches++;
    return OK;
}
int cuStreamCreate(void **stream, unsigned flags) { NEEDS_CONTEXT(); *stream = malloc(flags); return OK; }
int cuStreamSynchronize(void *stream)
{
    struct timespec pause = {0, 1000000};
    (void)stream;
    NEEDS_CONTEXT();
    nanosleep(&pause, NULL);
    return OK;
}
int cuEventCreate(void **event, unsigned flags) { (void)flags; NEEDS_CONTEXT(); *event = calloc(1, sizeof(double)); return OK; }
int cuEventRecord(double *event, void *stream)
{
    struct timespec now;
    (void)stream;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *event = now.tv_sec * 1e3 + now.tv_nsec / 1e6;
    return OK;
}
int cuEventElapsedTime(float *milliseconds, double *begin, double *end) { *milliseconds = *end - *begin; return OK; }
/* A device of 132 SMs in groups of 8, as on compute capability 9.0. STUB_OVERLAP has all parts begin with SM 0. */
struct resource { int type; char padding[92]; unsigned sm_count, first; char rest[40]; };
struct green { struct resource sms; };

int cuDeviceGetDevResource(int device, struct resource *resource, int type)
{
    (void)device;
    *resource = (struct resource){.type = type, .sm_count = 132};
    return OK;
}
int cuDevSmResourceSplitByCount(struct resource *group, unsigned *groups, const struct resource *from,
                                struct resource *rest, unsigned flags, unsigned least)
{
    unsigned count = (least + 7) / 8 * 8;
    if (flags || *groups != 1 || from->type != 1 || from->rest[0]) return INVALID_RESOURCE;
    if (count > from->sm_count) return INVALID_RESOURCE;
    *group = *rest = *from;
    group->sm_count = count;
    rest->sm_count -= count;
    rest->first += getenv("STUB_OVERLAP") ? 0 : count;
    rest->rest[0] = 1;
    return OK;
}
int cuDevResourceGenerateDesc(void **description, struct resource *resource, unsigned count)
{
    if (count != 1) return INVALID_RESOURCE;
    *description = resource;
    return OK;
}
int cuGreenCtxCreate(struct green **context, struct resource *description, int device, unsigned flags)
{
    if (device || flags != 1) return INVALID_RESOURCE;
    *context = malloc(sizeof **context);
    (*context)->sms = *description;
    (*context)->sms.rest[0] = 0;
    return OK;
}
int cuCtxFromGreenCtx(void **context, struct green *green) { *context = green; return OK; }
int cuGreenCtxGetDevResource(struct green *context, struct resource *resource, int type)
{
    if (type != 1) return INVALID_RESOURCE;
    *resource = context->sms;
    return OK;
}
int cuGreenCtxStreamCreate(void **stream, struct green *context, unsigned flags, int priority)
{
    if (flags != 1 || priority) return INVALID_RESOURCE;
    last_first = context->sms.first;
    last_count = context->sms.sm_count;
    *stream = malloc(1);
    return OK;
}
int cuGetErrorName(int code, const char **name)
{
    *name = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
        : code == INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
        : code == INVALID_PTX ? "CUDA_ERROR_INVALID_PTX"
        : code == INVALID_RESOURCE ? "CUDA_ERROR_INVALID_RESOURCE_TYPE" : NULL;
    return *name ? OK : 1;
}
