/* api_status.c - reports the state of the server: /liveness, /health, /metrics, /v1/models */
#include <string.h>

#include "serve/server.h"
#include "xdit/xdit.h"

void xd_api_liveness(xd_http_call *c)
{
    xd_text_buf b = { 0 };
    xd_buf_add(&b, "{\"status\":\"ok\",\"version\":\"%s\"}\n", xd_version());
    xd_reply_json(c, 200, &b);
}

void xd_api_health(xd_http_call *c)
{
    xd_server      *s = c->server;
    xd_worker_state w;
    xd_text_buf     b = { 0 };
    xd_tasks_counts n = xd_tasks_count(s->tasks);
    xd_worker_get_state(s->worker, &w);
    const char *status = *s->ending               ? "draining"
                         : !w.ready               ? "starting"
                         : w.silent < s->silent_s ? "ok"
                                                  : "silent";
    xd_buf_add(&b,
               "{\"status\":\"%s\",\"version\":\"%s\",\"ranks\":%d,\"queued\":%lld,"
               "\"running\":%lld}\n",
               status, xd_version(), w.ranks, (long long)n.queued, (long long)n.running);
    xd_reply_json(c, strcmp(status, "ok") == 0 ? 200 : 503, &b);
}

static void add_metric(xd_text_buf *b, const char *name, const char *kind, const char *help)
{
    xd_buf_add(b, "# HELP xdit_%s %s\n# TYPE xdit_%s %s\n", name, help, name, kind);
}

static void add_tasks(xd_text_buf *b, const xd_tasks_counts *n)
{
    add_metric(b, "queue_length", "gauge", "Queued requests.");
    xd_buf_add(b, "xdit_queue_length %lld\n", (long long)n->queued);
    add_metric(b, "running", "gauge", "Running requests.");
    xd_buf_add(b, "xdit_running %lld\n", (long long)n->running);
    add_metric(b, "jobs_total", "counter", "Ended and refused requests, by state.");
    xd_buf_add(b,
               "xdit_jobs_total{state=\"done\"} %lld\nxdit_jobs_total{state=\"failed\"} %lld\n"
               "xdit_jobs_total{state=\"cancelled\"} %lld\n"
               "xdit_jobs_total{state=\"refused\"} %lld\n",
               (long long)n->done, (long long)n->failed, (long long)n->cancelled,
               (long long)n->refused);
}

/* Appends the predicted seconds of all tasks that have not ended; tasks without a prediction do not
 * count. */
static void add_load(xd_text_buf *b, xd_server *s)
{
    add_metric(b, "queue_seconds", "gauge", "Predicted seconds of queued and running requests.");
    xd_buf_add(b, "xdit_queue_seconds %.3f\n", xd_tasks_seconds(s->tasks));
}

static void add_worker(xd_text_buf *b, const xd_worker_state *w)
{
    static const char *const parts[] = { "text", "load", "denoise", "decode" };
    add_metric(b, "seconds_total", "counter", "Seconds of finished requests, by part.");
    for (int i = 0; i < 4; i++)
        xd_buf_add(b, "xdit_seconds_total{part=\"%s\"} %.6f\n", parts[i], w->parts[i]);
    add_metric(b, "request_seconds_total", "counter", "Seconds of finished requests.");
    xd_buf_add(b, "xdit_request_seconds_total %.6f\n", w->seconds);
    add_metric(b, "resident_bytes", "gauge", "Resident memory of the worker's first rank.");
    xd_buf_add(b, "xdit_resident_bytes %.0f\n", w->resident);
    add_metric(b, "worker_ready", "gauge", "1: the worker is ready, 0: it is starting.");
    xd_buf_add(b, "xdit_worker_ready %d\n", w->ready);
    add_metric(b, "worker_silent_seconds", "gauge", "Seconds since the worker's last message.");
    xd_buf_add(b, "xdit_worker_silent_seconds %.3f\n", w->silent);
    add_metric(b, "ranks", "gauge", "Ranks of the worker.");
    xd_buf_add(b, "xdit_ranks %d\n", w->ready ? w->ranks : 0);
    add_metric(b, "models_open", "gauge", "Open models.");
    xd_buf_add(b, "xdit_models_open %d\n", w->models);
    add_metric(b, "worker_restarts_total", "counter", "Restarts of the worker after a crash.");
    xd_buf_add(b, "xdit_worker_restarts_total %d\n", w->restarts);
}

static void add_server(xd_text_buf *b, const xd_server *s)
{
    add_metric(b, "http_requests_total", "counter", "HTTP requests, by the class of their status.");
    for (int i = 2; i < 6; i++)
        xd_buf_add(b, "xdit_http_requests_total{status=\"%dxx\"} %lld\n", i,
                   (long long)xd_http_count(s->http, i));
    add_metric(b, "body_bytes", "gauge", "Bytes of request bodies in memory.");
    xd_buf_add(b, "xdit_body_bytes %zu\n", xd_http_body_bytes(s->http));
    add_metric(b, "queue_limit", "gauge", "Maximum number of queued requests.");
    xd_buf_add(b, "xdit_queue_limit %d\n", s->queue);
    add_metric(b, "start_time_seconds", "gauge", "Start of the server, by the Unix clock.");
    xd_buf_add(b, "xdit_start_time_seconds %.0f\n", s->started);
    add_metric(b, "build_info", "gauge", "Version of the server, as a label.");
    xd_buf_add(b, "xdit_build_info{version=\"%s\"} 1\n", xd_version());
}

void xd_api_metrics(xd_http_call *c)
{
    xd_server      *s = c->server;
    xd_worker_state w;
    xd_text_buf     b = { 0 };
    xd_tasks_counts n = xd_tasks_count(s->tasks);
    xd_worker_get_state(s->worker, &w);
    add_tasks(&b, &n);
    add_load(&b, s);
    add_worker(&b, &w);
    add_server(&b, s);
    xd_tasks_measures(s->tasks, &b);
    if (b.failed)
        xd_reply_error(c, 503, NULL, NULL, "no memory for metrics");
    else
        xd_reply_text(c, 200, "text/plain; version=0.0.4; charset=utf-8", b.p, b.len);
    xd_buf_free(&b);
}

static void add_model(xd_text_buf *b, const xd_server *s, const xd_served_model *m,
                      const char *name)
{
    xd_buf_add(b, "{\"id\":");
    xd_buf_json_string(b, name);
    xd_buf_add(b, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"xdit\"%s}",
               (long long)s->started, m->uses ? m->uses : "");
}

void xd_api_models(xd_http_call *c)
{
    const xd_server *s = c->server;
    xd_text_buf      b = { 0 };
    xd_buf_add(&b, "{\"object\":\"list\",\"data\":[");
    for (int i = 0; i < s->nmodels; i++) {
        const xd_served_model *m = &s->models[i];
        xd_buf_add(&b, "%s", i ? "," : "");
        add_model(&b, s, m, m->name);
        for (int k = 0; k < m->naliases; k++) {
            xd_buf_add(&b, ",");
            add_model(&b, s, m, m->aliases[k]);
        }
    }
    xd_buf_add(&b, "]}\n");
    xd_reply_json(c, 200, &b);
}

void xd_api_model(xd_http_call *c)
{
    const xd_server *s = c->server;
    xd_text_buf      b = { 0 };
    for (int i = 0; i < s->nmodels && !b.len; i++)
        if (xd_served_is_named(&s->models[i], c->arg))
            add_model(&b, s, &s->models[i], c->arg);
    if (b.len)
        xd_reply_json(c, 200, &b);
    else
        xd_reply_error(c, 404, "model", "model_not_found", "there is no model '%.64s' here",
                       c->arg);
}
