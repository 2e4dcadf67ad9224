// A real store whose writes a test counts, holds up or lets fail.
#ifndef GPULAYER_TESTS_ENGINE_GATED_STORE_H_
#define GPULAYER_TESTS_ENGINE_GATED_STORE_H_

#include <memory>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "server/store/store.h"

namespace gpulayer::testing {

class GatedStore : public Store {
 public:
  explicit GatedStore(const std::string& path) : store_(*Store::Open({path, true})) {}

  void Hold() {
    MutexLock lock(mutex_);
    held_ = true;
  }
  void Release() {
    {
      MutexLock lock(mutex_);
      held_ = false;
    }
    changed_.NotifyAll();
  }
  // The next writes fail with it; OK: they work again.
  void FailWith(Status status) {
    MutexLock lock(mutex_);
    failure_ = std::move(status);
  }
  int writes() {
    MutexLock lock(mutex_);
    return writes_;
  }
  int tries() {  // writes that were begun, held and failed ones too
    MutexLock lock(mutex_);
    return tries_;
  }

  ServerIdentity identity() const override { return store_->identity(); }
  Result<LoadedState> Load() override { return store_->Load(); }
  Status Write(const WriteBatch& batch) override {
    {
      MutexLock lock(mutex_);
      ++tries_;
      while (held_) changed_.Wait(mutex_);
      if (!failure_.ok()) return failure_;
      ++writes_;
    }
    return store_->Write(batch);
  }
  Status PutToken(const TokenRecord& token) override {
    {
      MutexLock lock(mutex_);
      if (!failure_.ok()) return failure_;
    }
    return store_->PutToken(token);
  }
  Result<std::vector<TokenRecord>> ListTokens() override { return store_->ListTokens(); }
  Result<std::unique_ptr<StoreReader>> OpenReader() override { return store_->OpenReader(); }

 private:
  const std::unique_ptr<Store> store_;
  Mutex mutex_;
  CondVar changed_;
  bool held_ GPULAYER_GUARDED_BY(mutex_) = false;
  Status failure_ GPULAYER_GUARDED_BY(mutex_);
  int writes_ GPULAYER_GUARDED_BY(mutex_) = 0;
  int tries_ GPULAYER_GUARDED_BY(mutex_) = 0;
};

}  // namespace gpulayer::testing

#endif  // GPULAYER_TESTS_ENGINE_GATED_STORE_H_
