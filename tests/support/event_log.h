// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TESTS_SUPPORT_EVENT_LOG_H_
#define DSTRACE_TESTS_SUPPORT_EVENT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tools/event_text.h"

namespace dstrace::testing {

// Keeps each event as a line of text, for comparisons.
class EventLog : public tools::EventText<EventLog> {
 public:
  bool Line(std::string line) {
    lines.push_back(std::move(line));
    return lines.size() < stop_after;
  }

  std::vector<std::string> lines;
  size_t stop_after = SIZE_MAX;
};

}  // namespace dstrace::testing

#endif  // DSTRACE_TESTS_SUPPORT_EVENT_LOG_H_
