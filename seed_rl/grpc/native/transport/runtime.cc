#include "seed_rl/grpc/native/transport/runtime.h"

#include <absl/synchronization/mutex.h>
#include <grpc/support/log.h>

#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>

namespace seed_rl::transport {
namespace {

constexpr int kMessagesPerMinute = 10;
constexpr size_t kMaxMessageBytes = 300;

// Escapes what a terminal would interpret, and truncates: messages quote what peers have sent.
std::string Harmless(const char* message) {
  std::string text;
  for (const char* c = message; *c != 0; ++c) {
    if (text.size() >= kMaxMessageBytes) return text + " ...";
    if (*c >= ' ' && *c <= '~') {
      text += *c;
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\x%02x", static_cast<unsigned char>(*c));
      text += escaped;
    }
  }
  return text;
}

// Prints gRPC's messages, but few: peers cause some of them, and could fill a disk.
void Log(gpr_log_func_args* arguments) {
  using Clock = std::chrono::steady_clock;
  static std::mutex mu;
  static Clock::time_point minute = Clock::now();  // Guarded by mu.
  static int printed = 0;                          // In that minute. Guarded by mu.
  std::lock_guard<std::mutex> lock(mu);
  const Clock::time_point now = Clock::now();
  if (now - minute >= std::chrono::minutes(1)) {
    minute = now;
    printed = 0;
  }
  if (++printed > kMessagesPerMinute) return;
  std::fprintf(
      stderr, "gRPC: %s%s\n", Harmless(arguments->message).c_str(),
      printed == kMessagesPerMinute ? " (further messages of this minute are left out)" : "");
}

}  // namespace

void ConfigureRuntime() {
  // Debian's Abseil detects lock order cycles, which takes 5 % of a call's time. TensorFlow has an
  // Abseil of its own, which this does not change.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  gpr_set_log_function(Log);
}

}  // namespace seed_rl::transport
