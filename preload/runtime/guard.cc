// SPDX-License-Identifier: Apache-2.0
#include "preload/runtime/guard.h"

namespace dstrace::runtime {

thread_local bool t_inside = false;

}  // namespace dstrace::runtime
