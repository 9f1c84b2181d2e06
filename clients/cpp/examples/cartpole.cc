// CartPole-v1: learner and actors, see README.md. The equations are those of Gymnasium's.

#include <cmath>
#include <memory>
#include <random>

#include "clients/cpp/actor.h"

namespace {

constexpr float kGravity = 9.8, kCart = 1.0, kPole = 0.1, kHalfLength = 0.5;
constexpr float kForce = 10.0, kTimeStep = 0.02, kLargestX = 2.4, kLargestAngle = M_PI / 15;
constexpr int kLimit = 500;

class CartPole : public seed_rl::Environment {
 public:
  explicit CartPole(int env_id) : random_(std::random_device()() + env_id) {}

  void Reset(seed_rl::Arrays& observation) override {
    std::uniform_real_distribution<float> near_zero(-0.05, 0.05);
    for (float* value : {&x_, &speed_, &angle_, &turning_}) *value = near_zero(random_);
    steps_ = 0;
    Write(observation);
  }

  seed_rl::Step Apply(const seed_rl::Arrays& action, seed_rl::Arrays& observation) override {
    const float force = *action.Part<int64_t>() == 1 ? kForce : -kForce;
    const float sin = std::sin(angle_), cos = std::cos(angle_), mass = kCart + kPole;
    const float pushed = (force + kPole * kHalfLength * turning_ * turning_ * sin) / mass;
    const float angular =
        (kGravity * sin - cos * pushed) / (kHalfLength * (4.0f / 3 - kPole * cos * cos / mass));
    const float linear = pushed - kPole * kHalfLength * angular * cos / mass;
    x_ += kTimeStep * speed_;
    speed_ += kTimeStep * linear;
    angle_ += kTimeStep * turning_;
    turning_ += kTimeStep * angular;
    Write(observation);
    seed_rl::Step step;
    step.reward = 1;
    step.terminated = std::abs(x_) > kLargestX || std::abs(angle_) > kLargestAngle;
    step.truncated = ++steps_ >= kLimit;
    return step;
  }

 private:
  void Write(seed_rl::Arrays& observation) const {
    float* values = observation.Part<float>();
    values[0] = x_, values[1] = speed_, values[2] = angle_, values[3] = turning_;
  }

  std::mt19937 random_;
  float x_ = 0, speed_ = 0, angle_ = 0, turning_ = 0;
  int steps_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  return seed_rl::ActorMain(argc, argv, {{{"float32", {4}}}, "2 choices from 0"},
                            [](int env_id) { return std::make_unique<CartPole>(env_id); });
}
