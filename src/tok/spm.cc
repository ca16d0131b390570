/* spm.cc - the only C++ file of this program: implements spm.h with the SentencePiece library, and
 * catches all exceptions. */
#include "tok/spm.h"

#include <sentencepiece_processor.h>

#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>

struct xd_spm {
    sentencepiece::SentencePieceProcessor p;
    int         unk;
    std::string unk_text;
};

xd_spm *xd_spm_open(const void *model, size_t len, char *why, size_t size)
{
    xd_spm *m = nullptr;
    try {
        m = new xd_spm;
        std::string_view bytes(static_cast<const char *>(model), len);
        sentencepiece::util::Status s = m->p.LoadFromSerializedProto(bytes);
        if (s.ok()) {
            m->unk = m->p.unk_id();
            m->unk_text = m->p.IdToPiece(m->unk);
            return m;
        }
        std::snprintf(why, size, "%s", s.error_message());
    } catch (const std::exception &x) {
        std::snprintf(why, size, "%s", x.what());
    }
    delete m;
    return nullptr;
}

void xd_spm_close(xd_spm *m)
{
    delete m;
}

int xd_spm_size(const xd_spm *m)
{
    return m->p.GetPieceSize();
}

int xd_spm_find(const xd_spm *m, const char *s, size_t len)
{
    std::string_view text(s, len);
    int id = m->p.PieceToId(text);
    /* for a string that is not a piece, the library returns the unknown piece */
    return id == m->unk && text != m->unk_text ? -1 : id;
}
