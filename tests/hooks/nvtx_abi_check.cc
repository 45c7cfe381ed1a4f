// SPDX-License-Identifier: Apache-2.0
//
// Compiles only if nvtx_abi.h says what NVIDIA's header says.

#include <nvtx3/nvToolsExt.h>

#include <cstddef>

#include "preload/hooks/nvtx_abi.h"

namespace dstrace::hooks::nvtx {

static_assert(sizeof(EventAttributes) == sizeof(nvtxEventAttributes_t));
static_assert(offsetof(EventAttributes, size) ==
              offsetof(nvtxEventAttributes_t, size));
static_assert(offsetof(EventAttributes, message_type) ==
              offsetof(nvtxEventAttributes_t, messageType));
static_assert(offsetof(EventAttributes, message) ==
              offsetof(nvtxEventAttributes_t, message));
static_assert(kMessageAscii == NVTX_MESSAGE_TYPE_ASCII);
static_assert(kMessageRegistered == NVTX_MESSAGE_TYPE_REGISTERED);
static_assert(kNoTracking == NVTX_NO_PUSH_POP_TRACKING);
static_assert(sizeof(RangeId) == sizeof(nvtxRangeId_t));
static_assert(kTableCallbacks == NVTX_ETID_CALLBACKS);
static_assert(kModuleCore == NVTX_CB_MODULE_CORE);
static_assert(kModuleCore2 == NVTX_CB_MODULE_CORE2);
static_assert(sizeof(CallbacksTable) == sizeof(NvtxExportTableCallbacks));
static_assert(offsetof(CallbacksTable, get_module_function_table) ==
              offsetof(NvtxExportTableCallbacks, GetModuleFunctionTable));

#define DSTRACE_SAME(ours, theirs) \
  static_assert(static_cast<int>(ours) == static_cast<int>(theirs))
DSTRACE_SAME(kMarkEx, NVTX_CBID_CORE_MarkEx);
DSTRACE_SAME(kMarkA, NVTX_CBID_CORE_MarkA);
DSTRACE_SAME(kRangeStartEx, NVTX_CBID_CORE_RangeStartEx);
DSTRACE_SAME(kRangeStartA, NVTX_CBID_CORE_RangeStartA);
DSTRACE_SAME(kRangeEnd, NVTX_CBID_CORE_RangeEnd);
DSTRACE_SAME(kRangePushEx, NVTX_CBID_CORE_RangePushEx);
DSTRACE_SAME(kRangePushA, NVTX_CBID_CORE_RangePushA);
DSTRACE_SAME(kRangePushW, NVTX_CBID_CORE_RangePushW);
DSTRACE_SAME(kRangePop, NVTX_CBID_CORE_RangePop);
DSTRACE_SAME(kDomainMarkEx, NVTX_CBID_CORE2_DomainMarkEx);
DSTRACE_SAME(kDomainRangeStartEx, NVTX_CBID_CORE2_DomainRangeStartEx);
DSTRACE_SAME(kDomainRangeEnd, NVTX_CBID_CORE2_DomainRangeEnd);
DSTRACE_SAME(kDomainRangePushEx, NVTX_CBID_CORE2_DomainRangePushEx);
DSTRACE_SAME(kDomainRangePop, NVTX_CBID_CORE2_DomainRangePop);
DSTRACE_SAME(kDomainRegisterStringA, NVTX_CBID_CORE2_DomainRegisterStringA);
DSTRACE_SAME(kDomainCreateA, NVTX_CBID_CORE2_DomainCreateA);

}  // namespace dstrace::hooks::nvtx
