#include "server/rpc/streams.h"

#include <utility>
#include <vector>

namespace gpulayer::rpc {
namespace {

constexpr std::size_t kEndedTokens = 1'000;

}  // namespace

void StreamRegistry::Add(const std::shared_ptr<OpenStream>& stream, const std::string& token_id) {
  std::optional<Status> ended;
  {
    MutexLock lock(mutex_);
    streams_[stream.get()] = {stream, token_id};
    ended = ended_;
    for (const auto& [id, why] : ended_tokens_) {
      if (!ended && id == token_id) ended = why;
    }
  }
  if (ended) stream->End(*ended);
}

void StreamRegistry::Remove(const OpenStream* stream) {
  MutexLock lock(mutex_);
  streams_.erase(stream);
}

void StreamRegistry::EndAll(const Status& why) {
  {
    MutexLock lock(mutex_);
    ended_ = why;
  }
  EndWhere([](const Entry&) { return true; }, why);
}

void StreamRegistry::EndOf(const std::string& token_id, const Status& why) {
  {
    MutexLock lock(mutex_);
    ended_tokens_.emplace_back(token_id, why);
    if (ended_tokens_.size() > kEndedTokens) ended_tokens_.pop_front();
  }
  EndWhere([&](const Entry& entry) { return entry.token_id == token_id; }, why);
}

std::size_t StreamRegistry::size() {
  MutexLock lock(mutex_);
  return streams_.size();
}

void StreamRegistry::EndWhere(const std::function<bool(const Entry&)>& which, const Status& why) {
  std::vector<std::shared_ptr<OpenStream>> chosen;
  {
    MutexLock lock(mutex_);
    for (const auto& [key, entry] : streams_) {
      if (!which(entry)) continue;
      if (auto stream = entry.stream.lock()) chosen.push_back(std::move(stream));
    }
  }
  for (const auto& stream : chosen) stream->End(why);
}

}  // namespace gpulayer::rpc
