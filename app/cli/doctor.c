/* doctor.c - collects and prints the findings of xdit doctor; see doctor.h */
#include "cli/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"

static const char *const states[] = { "ok", "warn", "fail" };

void xd_findings_add(xd_findings *f, xd_check_state state, const char *name, const char *advice,
                     const char *fmt, ...)
{
    va_list ap;
    if (f->n == (int)(sizeof f->v / sizeof *f->v))
        return;
    xd_finding *v = &f->v[f->n++];
    v->state = state;
    snprintf(v->name, sizeof v->name, "%s", name);
    snprintf(v->advice, sizeof v->advice, "%s", state == XD_CHECK_OK ? "" : advice);
    va_start(ap, fmt);
    vsnprintf(v->text, sizeof v->text, fmt, ap);
    va_end(ap);
}

void xd_findings_print(const xd_findings *f, int from)
{
    for (int i = from; i < f->n; i++)
        printf("%-5s %-12s %s%s%s\n", states[f->v[i].state], f->v[i].name, f->v[i].text,
               f->v[i].advice[0] ? "; " : "", f->v[i].advice);
}

void xd_findings_json(const xd_findings *f)
{
    xd_text_buf b = { 0 };
    xd_buf_add(&b, "{\"version\":\"%s\",\"healthy\":%s,\"findings\":[", xd_version(),
               xd_findings_worst(f) == XD_CHECK_FAIL ? "false" : "true");
    for (int i = 0; i < f->n; i++) {
        xd_buf_add(&b, "%s{\"state\":\"%s\",\"name\":\"%s\",\"text\":", i ? "," : "",
                   states[f->v[i].state], f->v[i].name);
        xd_buf_json_string(&b, f->v[i].text);
        xd_buf_add(&b, ",\"advice\":");
        xd_buf_json_string(&b, f->v[i].advice);
        xd_buf_add(&b, "}");
    }
    xd_buf_add(&b, "]}");
    if (!b.failed)
        xd_cli_line(NULL, b.p);
    xd_buf_free(&b);
}

int xd_findings_worst(const xd_findings *f)
{
    int worst = XD_CHECK_OK;
    for (int i = 0; i < f->n; i++)
        worst = (int)f->v[i].state > worst ? (int)f->v[i].state : worst;
    return worst;
}

const char *xd_bytes_text(double bytes, char text[16])
{
    static const char *const unit[] = { "B", "kB", "MB", "GB", "TB", "PB" };
    int                      u = 0;
    while (bytes >= 1000 && u < 5)
        bytes /= 1000, u++;
    snprintf(text, 16, bytes < 10 && u ? "%.1f %s" : "%.0f %s", bytes, unit[u]);
    return text;
}
