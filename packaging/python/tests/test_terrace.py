"""The module, with the program that TERRACE_PROGRAM names: `python3 -m unittest discover packaging/python/tests`."""

import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PACKAGE))

import terrace

MODEL = PACKAGE.parents[1] / "models" / "tiny-moe-Q4_K.gguf"
PROMPT = "In the beginning"
OPTIONS = {"ctx": 512, "threads": 1, "ram_budget": "8MiB", "stream": "experts"}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Plans(unittest.TestCase):
    def test_a_plan_is_what_the_command_says(self) -> None:
        plan = terrace.plan(MODEL, ram_budget="8MiB", stream="experts")
        self.assertEqual(plan["mode"], "expert-streaming")

    def test_errors_have_the_words_and_hints_of_the_program(self) -> None:
        with self.assertRaisesRegex(terrace.Error, "/nonexistent.gguf: no such file"):
            terrace.plan("/nonexistent.gguf")
        with self.assertRaises(terrace.Error) as raised:
            terrace.Model(MODEL, ram_budge="8MiB")
        self.assertIn("--ram-budget", raised.exception.hint or "")


class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.model = terrace.Model(MODEL, parallel=2, **OPTIONS)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.model.close()

    def test_pieces_are_the_text(self) -> None:
        whole = self.model.generate(PROMPT, max_tokens=16, temperature=0)
        pieces = list(self.model.generate(PROMPT, max_tokens=16, temperature=0, stream=True))
        self.assertGreater(len(pieces), 3)
        self.assertEqual("".join(pieces), whole)

    def test_a_reader_may_stop_early(self) -> None:
        pieces = self.model.generate(PROMPT, max_tokens=400, temperature=0, stream=True)
        next(pieces)
        pieces.close()
        self.assertTrue(self.model.generate(PROMPT, max_tokens=2, temperature=0))

    def test_threads_share_a_model(self) -> None:
        texts = []

        def ask() -> None:
            texts.append(self.model.generate(PROMPT, max_tokens=8, temperature=0))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(texts, texts[:1] * 4)

    def test_conversations_embeddings_and_reloads(self) -> None:
        messages = [{"role": "user", "content": "Who made the light?"}]
        answer = self.model.chat(messages, max_tokens=6, temperature=0)
        self.assertEqual("".join(self.model.chat(messages, max_tokens=6, temperature=0, stream=True)), answer)
        one, two = self.model.embed(["light", "darkness"])
        self.assertEqual(len(one), len(two))
        self.assertAlmostEqual(sum(value * value for value in one), 1, places=3)
        self.assertEqual(self.model.embed("light"), one)
        self.assertEqual(self.model.reload()["swapped"], [])

    def test_refused_requests_are_errors(self) -> None:
        with self.assertRaisesRegex(terrace.Error, "max_tokens"):
            self.model.generate(PROMPT, max_tokens=-5)
        with self.assertRaises(terrace.Error):
            self.model.generate("a " * 5000)


class Ends(unittest.TestCase):
    def test_a_closed_model_has_no_process_and_says_so(self) -> None:
        model = terrace.Model(MODEL, **OPTIONS)
        pid = model._server.pid
        model.close()
        model.close()
        self.assertFalse(alive(pid))
        with self.assertRaisesRegex(terrace.Error, "closed"):
            model.generate(PROMPT)

    def test_a_server_that_dies_is_an_error(self) -> None:
        with terrace.Model(MODEL, **OPTIONS) as model:
            model._server.kill()
            with self.assertRaises(terrace.Error):
                model.generate(PROMPT, max_tokens=4)

    def test_a_killed_process_leaves_no_server(self) -> None:
        code = (
            "import sys, time, terrace\n"
            f"model = terrace.Model({str(MODEL)!r}, **{OPTIONS!r})\n"
            "print(model._server.pid, flush=True)\n"
            "time.sleep(600)\n"
        )
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdout is not None
            pid = int(process.stdout.readline())
            self.assertTrue(alive(pid))
            process.send_signal(signal.SIGKILL)
            process.wait()
        until = time.monotonic() + 120
        while alive(pid) and time.monotonic() < until:
            time.sleep(0.05)
        self.assertFalse(alive(pid))


if __name__ == "__main__":
    unittest.main()
