// SPDX-License-Identifier: Apache-2.0
#include "preload/runtime/guard.h"

namespace dstrace::runtime {

thread_local ThreadLine t_line = {};

}  // namespace dstrace::runtime
