#include "seed_rl/grpc/native/transport/run_function.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

namespace seed_rl::transport {
namespace {

// How a run ended; the first of several reports counts.
class Outcome {
 public:
  void Set(const Status& status, std::vector<Tensor> results) {
    std::lock_guard<std::mutex> lock(mu_);
    if (done_) return;
    status_ = status;
    results_ = std::move(results);
    done_ = true;
    finished_.notify_one();
  }

  Status Wait(std::vector<Tensor>* results) {
    std::unique_lock<std::mutex> lock(mu_);
    finished_.wait(lock, [this] { return done_; });
    *results = std::move(results_);
    return status_;
  }

 private:
  std::mutex mu_;
  std::condition_variable finished_;  // `done_` became true.
  bool done_ = false;                 // Guarded by mu_.
  Status status_;                     // Guarded by mu_.
  std::vector<Tensor> results_;       // Guarded by mu_.
};

}  // namespace

Status RunAndWait(Function* function, std::vector<Tensor> arguments, std::vector<Tensor>* results) {
  // Shared, because a run that failed to start may still call back.
  auto outcome = std::make_shared<Outcome>();
  try {
    function->Start(std::move(arguments),
                    [outcome](const Status& status, std::vector<Tensor> tensors) {
                      outcome->Set(status, std::move(tensors));
                    });
  } catch (const std::bad_alloc&) {
    outcome->Set(OutOfMemory(), {});
  }
  return outcome->Wait(results);
}

}  // namespace seed_rl::transport
