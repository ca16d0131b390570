/* av.h - used only in src/io: loads FFmpeg's libraries with dlopen, when the first video is written
 * or read.
 *
 * FFmpeg's libraries must have the same major version as the headers of the build; FFmpeg keeps its
 * ABI stable within a major version. */
#ifndef XD_IO_AV_H
#define XD_IO_AV_H

#include "base/err.h"

#ifdef XD_WITH_VIDEO

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/opt.h>
#include <libswscale/swscale.h>

enum { XD_AV_UTIL, XD_AV_CODEC, XD_AV_FORMAT, XD_AV_SCALE, XD_AV_LIBS };

#define XD_AV_FUNCTIONS(X)                                                                        \
    X(UTIL, av_dict_free) X(UTIL, av_dict_parse_string) X(UTIL, av_dict_set)                      \
    X(UTIL, av_frame_alloc) X(UTIL, av_frame_free) X(UTIL, av_frame_get_buffer)                   \
    X(UTIL, av_frame_make_writable) X(UTIL, av_freep) X(UTIL, av_log_get_level)                   \
    X(UTIL, av_frame_unref) X(UTIL, av_log_set_level) X(UTIL, av_malloc)                          \
    X(UTIL, av_opt_set_int) X(UTIL, av_strerror) X(UTIL, av_channel_layout_default)               \
    X(CODEC, av_packet_alloc) X(CODEC, av_packet_free) X(CODEC, av_packet_rescale_ts)             \
    X(CODEC, av_packet_unref) X(CODEC, avcodec_alloc_context3)                                    \
    X(CODEC, avcodec_find_decoder) X(CODEC, avcodec_find_encoder_by_name)                         \
    X(CODEC, avcodec_free_context) X(CODEC, avcodec_open2)                                        \
    X(CODEC, avcodec_parameters_from_context) X(CODEC, avcodec_parameters_to_context)             \
    X(CODEC, avcodec_receive_frame) X(CODEC, avcodec_receive_packet)                              \
    X(CODEC, avcodec_send_frame) X(CODEC, avcodec_send_packet)                                    \
    X(FORMAT, av_find_best_stream) X(FORMAT, av_interleaved_write_frame)                          \
    X(FORMAT, av_read_frame) X(FORMAT, av_write_trailer)                                          \
    X(FORMAT, avformat_alloc_output_context2) X(FORMAT, avformat_free_context)                    \
    X(FORMAT, avformat_close_input) X(FORMAT, avformat_find_stream_info)                          \
    X(FORMAT, avformat_open_input)                                                                \
    X(FORMAT, avformat_new_stream) X(FORMAT, avformat_write_header) X(FORMAT, avio_alloc_context) \
    X(FORMAT, avio_context_free) X(FORMAT, avio_flush)                                            \
    X(SCALE, sws_alloc_context) X(SCALE, sws_freeContext) X(SCALE, sws_getCoefficients)           \
    X(SCALE, sws_init_context) X(SCALE, sws_scale) X(SCALE, sws_setColorspaceDetails)

typedef struct xd_av {
#define XD_AV_FIELD(lib, name) __typeof__(name) *name;
    XD_AV_FUNCTIONS(XD_AV_FIELD)
#undef XD_AV_FIELD
} xd_av;

/* Sets *av to the table of FFmpeg's functions, which is loaded once per process. Returns
 * XD_EUNSUPPORTED if a library is missing; the error message names the library. */
xd_status xd_av_load(const xd_av **av, xd_err *e);

#endif

#endif
