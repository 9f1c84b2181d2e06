#ifndef SEED_RL_COMMON_NATIVE_EARLY_CANCELLATION_H_
#define SEED_RL_COMMON_NATIVE_EARLY_CANCELLATION_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

namespace seed_rl {

// Connects a cancellation to a request whose id is only known once it has been sent; either may
// come first.
class EarlyCancellation {
 public:
  // `cancel` is called with the id, at most once for each call below.
  explicit EarlyCancellation(std::function<void(int64_t)> cancel) : cancel_(std::move(cancel)) {}

  void Cancel() {
    {
      std::lock_guard<std::mutex> lock(mu_);
      cancelled_ = true;
      if (!id_) return;
    }
    cancel_(*id_);
  }

  void Sent(int64_t id) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      id_ = id;
      if (!cancelled_) return;
    }
    cancel_(id);
  }

 private:
  const std::function<void(int64_t)> cancel_;
  std::mutex mu_;
  bool cancelled_ = false;     // Guarded by mu_.
  std::optional<int64_t> id_;  // Set once. Guarded by mu_.
};

}  // namespace seed_rl

#endif  // SEED_RL_COMMON_NATIVE_EARLY_CANCELLATION_H_
