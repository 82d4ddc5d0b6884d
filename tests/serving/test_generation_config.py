"""What a model's makers recommend for sampling is what requests get that do not say otherwise."""
import json
import shutil
import subprocess

import pytest

from server import BINARY, Server

PROMPT = {"prompt": "Once upon a time", "max_tokens": 24, "ignore_eos": True}


@pytest.fixture()
def folder(small_folder, tmp_path):
    """A copy of the small model whose generation_config.json may be written."""
    copy = tmp_path / "model"
    shutil.copytree(small_folder, copy)
    return copy


def recommend(folder, **fields):
    file = folder / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def texts(server, count=2, **fields):
    answers = [server.post("/v1/completions", {**PROMPT, **fields}) for _ in range(count)]
    assert all(status == 200 for status, _ in answers), answers
    return {answer["choices"][0]["text"] for _, answer in answers}


def defaults(server):
    return server.get("/get_server_info")[1]["default_sampling"]


def test_the_recommended_fields_are_used_and_the_request_goes_before_them(folder):
    recommend(folder, top_k=1, temperature=0.7, top_p=0.9, do_sample=True)
    with Server(folder) as server:
        assert defaults(server) == {"temperature": 0.7, "top_p": 0.9, "top_k": 1, "min_p": 0, "repetition_penalty": 1}
        assert "sampling.defaults temperature=0.7 top_p=0.9 top_k=1" in server.output()
        greedy = texts(server, temperature=0)
        assert len(greedy) == 1
        assert texts(server) == greedy, "top_k 1 leaves the likeliest token"
        assert len(texts(server, count=4, top_k=0, temperature=2, top_p=1)) > 1
        status, chat = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "temperature": 0})
        again = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8})[1]
        assert status == 200 and chat["choices"][0]["message"] == again["choices"][0]["message"], "chats get them too"


def test_no_sampling_recommended_means_the_likeliest_token(folder):
    recommend(folder, do_sample=False)
    with Server(folder) as server:
        assert defaults(server)["temperature"] == 0
        assert texts(server) == texts(server, temperature=0)


def test_they_can_be_left_aside(folder):
    recommend(folder, top_k=1, temperature=0.7)
    with Server(folder, "--generation-config", "none") as server:
        assert defaults(server) == {"temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0, "repetition_penalty": 1}
        assert len(texts(server, count=4)) > 1


def test_a_folder_with_a_trailing_slash_and_the_folder_one_is_in_have_names(small_folder):
    with Server(f"{small_folder}/") as server:
        assert server.get("/v1/models")[1]["data"][0]["id"] == "micro"


@pytest.mark.parametrize("fields", [{"temperature": "hot"}, {"top_p": 7}, {"top_k": 1.5}, {"do_sample": 3}, {"repetition_penalty": -1}])
def test_a_wrong_file_is_one_sentence_at_start(folder, fields):
    recommend(folder, **fields)
    run = subprocess.run([BINARY, "serve", folder, "--port", "0"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 1 and "generation_config.json" in run.stderr and next(iter(fields)) in run.stderr
    assert run.stderr.count("\n") == 1
