// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_LOG_MERGE_H_
#define DSTRACE_ANALYZER_LOG_MERGE_H_

#include <vector>

#include "absl/status/status.h"
#include "analyzer/log/chunk_decoder.h"
#include "analyzer/log/chunk_index.h"
#include "analyzer/log/file.h"
#include "analyzer/model/events.h"

namespace dstrace::log {

// Delivers the events of `chunks`, which are sorted by first_time, in order of
// time; events of one instant in order of chunk. A chunk is read only when its
// first time has come and dropped at its end:
//
//   thread 1  [---chunk 0---][---chunk 2---]
//   thread 2        [------chunk 1------]
//                          ^ two chunks in memory
//
// Stops early, with OK, when the visitor says so.
absl::Status MergeChunks(const File& file, const std::vector<ChunkInfo>& chunks,
                         const DecodeContext& context,
                         model::EventVisitor& visitor);

}  // namespace dstrace::log

#endif  // DSTRACE_ANALYZER_LOG_MERGE_H_
