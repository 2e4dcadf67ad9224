// Lists that a server gives in pages.
#ifndef GPULAYER_CLIENT_PAGES_H_
#define GPULAYER_CLIENT_PAGES_H_

#include "base/status.h"

namespace gpulayer::client {

// Asks with `call(request, &reply)` for page after page and hands each to `each(reply)`; an error
// of `call` ends it.
template <typename Request, typename Reply, typename Call, typename Each>
Status ForEachPage(const Call& call, const Each& each) {
  Request request;
  for (;;) {
    Reply reply;
    GPULAYER_RETURN_IF_ERROR(call(request, &reply));
    each(reply);
    // A server that names the same page again would hold us for ever.
    if (reply.next().empty() || reply.next() == request.after()) return OkStatus();
    request.set_after(reply.next());
  }
}

}  // namespace gpulayer::client

#endif  // GPULAYER_CLIENT_PAGES_H_
