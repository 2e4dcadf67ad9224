// Strong types for ids: a JobId is never taken for an AttemptNo.
#ifndef GPULAYER_BASE_STRONG_H_
#define GPULAYER_BASE_STRONG_H_

#include <compare>
#include <functional>
#include <ostream>
#include <utility>

namespace gpulayer {

template <typename Tag, typename T>
class Strong {
 public:
  using value_type = T;
  Strong() = default;
  explicit Strong(T value) : value_(std::move(value)) {}
  const T& value() const { return value_; }
  friend auto operator<=>(const Strong&, const Strong&) = default;
  friend bool operator==(const Strong&, const Strong&) = default;
  friend std::ostream& operator<<(std::ostream& os, const Strong& s) { return os << s.value_; }

 private:
  T value_{};
};

}  // namespace gpulayer

template <typename Tag, typename T>
struct std::hash<gpulayer::Strong<Tag, T>> {
  std::size_t operator()(const gpulayer::Strong<Tag, T>& s) const noexcept {
    return std::hash<T>()(s.value());
  }
};

#endif  // GPULAYER_BASE_STRONG_H_
