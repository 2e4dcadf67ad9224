// What the shared library shows, and under which names.
//
// All but Status and Result lives in the inline namespace `api`: a program writes gpulayer::Client.
// The library's own sources define GPULAYER_LIBRARY_SOURCE, which makes the namespace an ordinary
// one, because its inner types bear some of the same names (a job as stored is not a job as
// submitted). Symbols are the same in both.
#ifndef GPULAYER_EXPORT_H_
#define GPULAYER_EXPORT_H_

#define GPULAYER_EXPORT __attribute__((visibility("default")))

#ifdef GPULAYER_LIBRARY_SOURCE
#define GPULAYER_API_BEGIN namespace api {
#else
#define GPULAYER_API_BEGIN inline namespace api {
#endif
#define GPULAYER_API_END }

#endif  // GPULAYER_EXPORT_H_
