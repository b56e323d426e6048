"""How attention gets at the cache, by the switches of a run."""

from llmprof.schema.cost import KvAccess, KvRead
from llmprof.schema.settings import BatchingPolicy, KvDtype, KvLayout, RunConfig, WorkloadKind


def kv_access(config: RunConfig, *, decode_kernel: bool, chunk_kernel: bool = False) -> KvAccess:
    """Where a run of this configuration gathers a copy of its cache before it attends.

    A view needs tokens side by side in the model's dtype, and for several sequences one length.
    `decode_kernel`: decoding tokens have a kernel that follows block tables and reads stored dtypes.
    `chunk_kernel`: so have several new tokens that follow cached ones.
    """
    kv = config.kv_cache
    if kv.layout is KvLayout.NONE:
        return KvAccess()
    plain = kv.layout is KvLayout.CONTIGUOUS and kv.dtype is KvDtype.AS_WEIGHTS
    one_length = (
        config.batching.policy is BatchingPolicy.STATIC
        and config.workload.kind is WorkloadKind.FIXED
    )
    viewed = plain and one_length
    return KvAccess(
        decode=KvRead.IN_PLACE if decode_kernel or viewed else KvRead.GATHERED,
        chunk=KvRead.IN_PLACE if chunk_kernel or plain else KvRead.GATHERED,
    )
