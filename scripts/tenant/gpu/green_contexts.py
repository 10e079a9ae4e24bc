"""Green contexts: disjoint parts of a GPU's SMs, each with streams of its own, in the primary context of one process.

They need CUDA 12.4 (driver 550). SMs come in groups (of 8 from compute capability 9.0 on), so a part is rounded down.
"""

from collections.abc import Sequence
from ctypes import Structure, byref, c_int, c_ubyte, c_uint, c_void_p

from tenant.contract import DeviceView
from tenant.gpu import cuda

# CU_DEV_RESOURCE_TYPE_SM and CU_GREEN_CTX_DEFAULT_STREAM.
SM_RESOURCE = 1
DEFAULT_STREAM = 1
# No GPU has more SMs. The blocks stay long enough for the GPU to spread them over all SMs that it may use.
MOST_SMS = 1024
BLOCKS_PER_SM = 8
STAY_NS = 100_000

# void sm_ids2(uint8 *out, uint64 ns): each block sets out[id of its SM] to 1, and stays for that time.
PTX = """
.version 7.0
.target sm_70
.address_size 64

.visible .entry sm_ids2(.param .u64 p_out, .param .u64 p_ns)
{
    .reg .pred  %p;
    .reg .b32   %sm, %one;
    .reg .b64   %out, %ns, %offset, %begun, %now;
    ld.param.u64        %out, [p_out];
    ld.param.u64        %ns, [p_ns];
    cvta.to.global.u64  %out, %out;
    mov.u32             %sm, %smid;
    mov.u32             %one, 1;
    cvt.u64.u32         %offset, %sm;
    add.u64             %out, %out, %offset;
    st.global.u8        [%out], %one;
    mov.u64             %begun, %globaltimer;
STAY:
    mov.u64             %now, %globaltimer;
    sub.u64             %now, %now, %begun;
    setp.lt.u64         %p, %now, %ns;
    @%p bra             STAY;
    ret;
}
"""


class Resource(Structure):
    """CUdevResource of the driver's header: here the type, and the number of SMs; the rest is the driver's own."""

    _fields_ = (("type", c_int), ("_padding", c_ubyte * 92), ("sm_count", c_uint), ("_rest", c_ubyte * 44))


class Part:
    """A green context with these SMs. Needs `cuda.open_context` in the calling thread. Raises CudaError."""

    def __init__(self, resource: Resource) -> None:
        description = cuda.new_handle("cuDevResourceGenerateDesc", byref(resource), c_uint(1))
        number, flags = c_int(cuda.device_number()), c_uint(DEFAULT_STREAM)
        self._context = cuda.new_handle("cuGreenCtxCreate", description, number, flags)

    def resource(self) -> Resource:
        """The SMs that the driver says it has."""
        resource = Resource()
        cuda.call("cuGreenCtxGetDevResource", self._context, byref(resource), c_int(SM_RESOURCE))
        return resource

    def _stream(self) -> c_void_p:
        flags, priority = c_uint(cuda.STREAM_NON_BLOCKING), c_int(0)
        return cuda.new_handle("cuGreenCtxStreamCreate", self._context, flags, priority)

    def enter(self) -> None:
        """Have the calling thread use this context for good; new streams of workloads run on its SMs.

        A green context can be that of one thread only.
        """
        cuda.call("cuCtxSetCurrent", cuda.new_handle("cuCtxFromGreenCtx", self._context))
        cuda.stream_source.set(self._stream)

    def sm_ids(self) -> list[int]:
        """Ids of the SMs that the blocks of a kernel ran on."""
        seen = cuda.DeviceBuffer(MOST_SMS)
        stream = cuda.CudaStream(self._stream())
        cuda.Kernel(PTX, "sm_ids2").launch(BLOCKS_PER_SM * cuda.sm_count(), 1, seen.pointer, STAY_NS, stream=stream)
        stream.synchronize()
        return [number for number, is_seen in enumerate(seen.read()) if is_seen]

    def view(self, process_view: DeviceView) -> DeviceView:
        """The view of a tenant on these SMs, from that of its process."""
        return {**process_view, "sm_count": self.resource().sm_count, "sm_ids": self.sm_ids()}


def _group(resource: Resource, most_sms: int) -> tuple[Resource, Resource]:
    """The largest group of at most that number of SMs, and the remaining ones. Raises CudaError.

    The driver itself rounds up, so smaller numbers are tried.
    """
    group, remaining = Resource(), Resource()
    for least in range(most_sms, 0, -1):
        number, flags = c_uint(1), c_uint(0)
        try:
            cuda.call(
                "cuDevSmResourceSplitByCount",
                *(byref(group), byref(number), byref(resource), byref(remaining), flags, c_uint(least)),
            )
        except cuda.CudaError:
            if least == 1:
                raise
            # Rounded up, it may be more than there are.
            continue
        if number.value == 1 and group.sm_count <= most_sms:
            return group, remaining
    raise cuda.CudaError(f"no green context is as small as {most_sms} of {resource.sm_count} SMs")


def split(sm_counts: Sequence[int]) -> list[Part]:
    """Disjoint parts of the device, each with at most that number of SMs. Raises CudaError."""
    left, parts = Resource(), list[Part]()
    # The last groups of a GPU may be larger, and tenants with equal shares get equal parts.
    granted: dict[int, int] = {}
    cuda.call("cuDeviceGetDevResource", c_int(cuda.device_number()), byref(left), c_int(SM_RESOURCE))
    for number, most_sms in enumerate(sm_counts):
        if number:
            # Only the resource of a device or a context can be split, not what remains of one.
            left = Part(left).resource()
        group, left = _group(left, granted.get(most_sms, most_sms))
        granted[most_sms] = group.sm_count
        parts.append(Part(group))
    return parts
