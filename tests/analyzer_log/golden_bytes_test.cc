// SPDX-License-Identifier: Apache-2.0
//
// Bytes written out by hand, so that reader and builder cannot agree on a
// mistake.
#include <unistd.h>

#include <filesystem>
#include <string>

#include "analyzer/log/trace_reader.h"
#include "gtest/gtest.h"
#include "tests/support/event_log.h"
#include "tests/support/trace_builder.h"

namespace dstrace::log {
namespace {

using dstrace::testing::EventLog;

template <size_t kSize>
std::string Literal(const char (&bytes)[kSize]) {
  return std::string(bytes, kSize - 1);
}

// A chunk of the writer's layout around `payload`: thread 7, sequence 0, first
// time 1000.
std::string ChunkOf(const std::string& payload) {
  std::string chunk = Literal("\x0a\xfa\xff\x83\x80\x00");  // field 1, 65 530
  chunk += Literal("\x85\x01");                             // field 16
  chunk += static_cast<char>(payload.size());
  chunk += Literal("\x00\x00\x00");
  chunk += Literal("\x15\x07\x00\x00\x00");
  chunk += Literal("\x1d\x00\x00\x00\x00");
  chunk += Literal("\x21\xe8\x03\x00\x00\x00\x00\x00\x00");
  chunk += Literal("\x29\x00\x00\x00\x00\x00\x00\x00\x00");
  chunk += Literal("\x32\xd2\xff\x83\x80\x00");  // field 6, 65 490
  EXPECT_EQ(chunk.size(), 46U);
  chunk += payload;
  chunk.resize(65536);
  return chunk;
}

// Header { format_version: 1, pid: 42, monotonic_time: 1000 }
const std::string kHeader = Literal("\x62\x07\x08\x01\x18\x2a\x48\xe8\x07");

std::vector<std::string> Read(const std::string& payload) {
  const std::string path =
      ::testing::TempDir() + "golden_bytes_" + std::to_string(getpid()) + ".pb";
  dstrace::testing::WriteFile(path, ChunkOf(payload));
  auto reader = TraceReader::Open(path);
  EXPECT_TRUE(reader.ok()) << reader.status();
  std::filesystem::remove(path);
  if (!reader.ok()) return {};
  EXPECT_TRUE((*reader)->facts().notes.empty())
      << (*reader)->facts().notes.front();
  EXPECT_EQ((*reader)->facts().process.pid, 42U);
  EventLog log;
  EXPECT_TRUE((*reader)->Replay(log).ok());
  return log.lines;
}

TEST(GoldenBytes, ALiteralBlockGetsASlotThatAFreeNames) {
  const std::vector<std::string> lines =
      Read(kHeader +
           // alloc: +5 ns, stack 3, literal +0x1000, 512 bytes, CUDA 0
           Literal("\x0a\x09\x05\x03\x00\x80\x40\x80\x04\x80\x02") +
           // free: +300 ns, slot 0
           Literal("\x12\x03\xac\x02\x01"));

  EXPECT_EQ(lines,
            (std::vector<std::string>{"5 7 alloc 1000+512 device 100 stack 0",
                                      "305 7 free 1000+512 device 100"}));
}

TEST(GoldenBytes, AShortLiteralIsInUnitsOnTheDeviceOfTheOneBefore) {
  const std::vector<std::string> lines =
      Read(kHeader +
           // alloc: +5 ns, stack 3, literal +0x1000, 512 bytes, CUDA 1
           Literal("\x0a\x09\x05\x03\x00\x80\x40\x80\x04\x81\x02") +
           // alloc: +1 ns, stack 3, short literal -2 units, 3 units
           Literal("\x0a\x05\x01\x03\x00\x03\x03") +
           // free: +1 ns, slot 1; free: +1 ns, short literal +4 units, 1 unit
           Literal("\x12\x02\x01\x02") + Literal("\x12\x04\x01\x00\x08\x01"));

  EXPECT_EQ(lines,
            (std::vector<std::string>{"5 7 alloc 1000+512 device 101 stack 0",
                                      "6 7 alloc c00+1536 device 101 stack 0",
                                      "7 7 free c00+1536 device 101",
                                      "8 7 free 1400+512 device 101"}));
}

TEST(GoldenBytes, LiteralsInFreesCountAsSlotsToo) {
  const std::vector<std::string> lines =
      Read(kHeader +
           // free: +0, literal +0x1000, 1 byte, CPU
           Literal("\x12\x06\x00\x00\x80\x40\x01\x00") +
           // alloc: +1, stack 0, literal -0x800, 2 bytes, CPU
           Literal("\x0a\x07\x01\x00\x00\xff\x1f\x02\x00") +
           // alloc: +1, stack 0, slot 0; free: +1, slot 1
           Literal("\x0a\x03\x01\x00\x01") + Literal("\x12\x02\x01\x02"));

  EXPECT_EQ(
      lines,
      (std::vector<std::string>{
          "0 7 free 1000+1 device 0", "1 7 alloc 800+2 device 0 stack 0",
          "2 7 alloc 1000+1 device 0 stack 0", "3 7 free 800+2 device 0"}));
}

TEST(GoldenBytes, StreamEventsAndMessagesShareOneClock) {
  const std::vector<std::string> lines =
      Read(kHeader +
           // stream_event: +1, record, event 0x10, stream 0x20
           Literal("\x7a\x04\x01\x00\x10\x20") +
           // DeviceEvent { time: 2, kind: ALLOC, address: 0x80, size: 4 }
           Literal("\x1a\x09\x08\x02\x10\x01\x20\x80\x01\x28\x04") +
           // MemorySample { time: 3, free: 5, total: 9, reason: FIRST }
           Literal("\x22\x08\x08\x03\x18\x05\x20\x09\x28\x04") +
           // stream_event: +4, ready
           Literal("\x7a\x04\x04\x01\x10\x00"));

  EXPECT_EQ(lines,
            (std::vector<std::string>{
                "1 7 stream-event kind 0 event 10 stream 20",
                "3 7 device-event kind 1 api  label  80+4 device 0 handle 0 "
                "stream 0 pool 0 offset 0 flags 0 result 0 free 0 total 0 "
                "stack 0",
                "6 7 sample device 0 free 5 total 9 reason 4",
                "10 7 stream-event kind 1 event 10 stream 0"}));
}

TEST(GoldenBytes, AThreadRecordHandsTheChunkOn) {
  const std::vector<std::string> lines =
      Read(kHeader + Literal("\x7a\x04\x00\x00\x01\x01") +
           // Thread { tid: 9, name: "w" }
           Literal("\x42\x05\x08\x09\x12\x01w") +
           Literal("\x7a\x04\x02\x00\x01\x01"));

  EXPECT_EQ(lines, (std::vector<std::string>{
                       "0 7 stream-event kind 0 event 1 stream 1",
                       "2 9 stream-event kind 0 event 1 stream 1"}));
}

TEST(GoldenBytes, RecordsOfALaterFormatAreSkipped) {
  const std::vector<std::string> lines =
      Read(kHeader +
           // Field 100, three bytes; field 101, a varint
           Literal("\xa2\x06\x03???") + Literal("\xa8\x06\x05") +
           Literal("\x7a\x04\x02\x00\x01\x01"));

  EXPECT_EQ(
      lines,
      (std::vector<std::string>{"2 7 stream-event kind 0 event 1 stream 1"}));
}

}  // namespace
}  // namespace dstrace::log
