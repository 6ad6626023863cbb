/* coding_br.c — br (RFC 7932) by brotli's decoder, without the large windows of its extension. */
#include <brotli/decode.h>

#include "egress/vault/coding_impl.h"

static void *get(void *user, size_t n)
{
    (void)user;
    return coding_alloc(n);
}

static void put_back(void *user, void *p)
{
    (void)user;
    coding_free(p);
}

static void *make(void)
{
    return BrotliDecoderCreateInstance(get, put_back, NULL);
}

static enum step fault_of(const BrotliDecoderState *d)
{
    BrotliDecoderErrorCode code = BrotliDecoderGetErrorCode(d);
    bool memory = code <= BROTLI_DECODER_ERROR_ALLOC_CONTEXT_MODES &&
                  code >= BROTLI_DECODER_ERROR_ALLOC_BLOCK_TYPE_TREES;
    return memory ? STEP_MEMORY : STEP_BAD;
}

static enum step step(void *state, struct coded *c)
{
    size_t nfrom = c->nfrom, nto = c->nto;
    const uint8_t *from = c->from;
    uint8_t *to = c->to;
    BrotliDecoderResult got = BrotliDecoderDecompressStream(state, &nfrom, &from, &nto, &to, NULL);
    c->used = c->nfrom - nfrom;
    c->made = c->nto - nto;
    if (got == BROTLI_DECODER_RESULT_SUCCESS)
        return STEP_END;
    return got == BROTLI_DECODER_RESULT_ERROR ? fault_of(state) : STEP_ON;
}

static void end(void *state)
{
    BrotliDecoderDestroyInstance(state);
}

const struct decoder_ops coding_br = {make, step, end, false};
