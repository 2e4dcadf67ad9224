#include "base/thread.h"
#include "client/interrupt_state.h"

namespace gpulayer::api {

void Interrupt::State::Throw() {
  MutexLock lock(mutex_);
  if (thrown_) return;
  thrown_ = true;
  for (const auto& [id, waker] : wakers_) waker();
  cv_.NotifyAll();
}

bool Interrupt::State::thrown() const { return thrown_; }

int Interrupt::State::Add(std::function<void()> waker) {
  MutexLock lock(mutex_);
  if (thrown_) waker();
  const int id = next_++;
  wakers_[id] = std::move(waker);
  return id;
}

void Interrupt::State::Remove(int id) {
  MutexLock lock(mutex_);
  wakers_.erase(id);
}

bool Interrupt::State::SleepFor(Duration d) {
  MutexLock lock(mutex_);
  const auto end = std::chrono::steady_clock::now() + d;
  while (!thrown_) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= Duration::zero()) return true;
    cv_.WaitFor(mutex_, left);
  }
  return false;
}

Interrupt::Interrupt() : state_(std::make_shared<State>()) {}
Interrupt::Interrupt(const Interrupt&) = default;
Interrupt& Interrupt::operator=(const Interrupt&) = default;
Interrupt::~Interrupt() = default;
void Interrupt::Throw() { state_->Throw(); }
bool Interrupt::thrown() const { return state_->thrown(); }

}  // namespace gpulayer::api

namespace gpulayer::client {

Alarm::Alarm(InterruptPtr target, Duration after) {
  thread_ = TryThread([this, target = std::move(target), after] {
    if (!stop_.SleepFor(after)) return;
    rang_ = true;
    target->Throw();
  });
}

Alarm::~Alarm() {
  stop_.Throw();
  if (thread_.joinable()) thread_.join();
}

}  // namespace gpulayer::client
