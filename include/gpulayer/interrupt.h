// How one thread ends the waiting of another.
#ifndef GPULAYER_INTERRUPT_H_
#define GPULAYER_INTERRUPT_H_

#include <memory>

#include "gpulayer/export.h"

namespace gpulayer {
GPULAYER_API_BEGIN

// A switch that is thrown once. Hand it to ClientOptions: once thrown, all calls of that client
// return CANCELLED within moments instead of waiting on.
// Threads:   every method from any thread. Not from a signal handler: let a thread wait for the
//            signal.
// Ownership: copies are the same switch.
// Blocking:  nothing waits.
// Errors:    none.
class GPULAYER_EXPORT Interrupt {
 public:
  Interrupt();
  Interrupt(const Interrupt&);
  Interrupt& operator=(const Interrupt&);
  ~Interrupt();

  void Throw();  // may be called again
  bool thrown() const;

  class State;  // the library's
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

GPULAYER_API_END
}  // namespace gpulayer

#endif  // GPULAYER_INTERRUPT_H_
