"""Files: endings, folders, the program that draws, and what goes wrong."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from drawn import dot_source

from piper_dsl.draw import FORMATS, DrawError, Ran, View, draw, find_scenes, timeline_text
from piper_dsl.draw.picture import draw_picture
from piper_dsl.draw.program import find_program, render
from piper_dsl.simulate import Costs

DOT = "graph { a }"


@pytest.fixture
def timeline(make_timeline):
    return make_timeline("1f1b", p=2, m=4)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder that is all of PATH, and no program beside the interpreter."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    return folder


def install(folder: Path, name: str, body: str) -> Path:
    """A program that is one line of Python."""
    program = folder / name
    interpreter = Path(sys.base_prefix) / "bin" / "python3"
    program.write_text(f"#!{interpreter}\nimport sys, time\n{body}\n")
    program.chmod(0o755)
    return program


def test_svg(timeline, tmp_path):
    draw(timeline, tmp_path / "a.svg")
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    texts = ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "rank 1" in texts
    assert sorted(text for text in texts if text.isdigit() and int(text) < 4).count("3") == 4


def test_png_dot_and_txt(timeline, tmp_path):
    for ending in ("png", "dot", "txt"):
        draw(timeline, str(tmp_path / f"a.{ending}"))
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert (tmp_path / "a.dot").read_text(encoding="utf-8") == dot_source(timeline)
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == timeline_text(timeline).plain + "\n"


def test_the_same_bytes_again(timeline, tmp_path):
    for name in ("a.svg", "b.svg"):
        draw(timeline, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


EVERYTHING = View(transfers=True, critical_path=True, memory=True)


@pytest.mark.parametrize("ending", [ending for ending in FORMATS if ending != ".pdf"])
def test_every_format_of_timelines_with_little_in_them(make_timeline, empty_timeline, tmp_path, ending):
    still = make_timeline("1f1b", Costs(F=0, B=0), p=2, m=2)
    lone = make_timeline("ranks 1\nmicrobatches 1\nrank 0 { F[0] }\n")
    for number, timeline in enumerate([still, empty_timeline, lone, [lone, empty_timeline, still]]):
        draw(timeline, tmp_path / f"{number}{ending}", EVERYTHING)
        assert (tmp_path / f"{number}{ending}").stat().st_size > 100


def test_missing_folders_are_made_and_case_does_not_matter(timeline, tmp_path):
    draw(timeline, tmp_path / "new" / "folder" / "A.TXT")
    assert (tmp_path / "new" / "folder" / "A.TXT").exists()


@pytest.mark.parametrize("name", ["a.bmp", "a", ".svg"])
def test_an_unknown_ending(timeline, tmp_path, name):
    with pytest.raises(DrawError) as caught:
        draw(timeline, tmp_path / name)
    assert str(tmp_path / name) in caught.value.message
    assert caught.value.help == "end it in .svg, .png, .pdf, .dot, .html, .json, .txt"
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_path_that_cannot_be_written(timeline, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.txt").mkdir()
    for path in (tmp_path / "file" / "a.txt", tmp_path / "folder.txt"):
        with pytest.raises(DrawError, match="cannot write") as caught:
            draw(timeline, path)
        assert str(path) in caught.value.message
    with pytest.raises(DrawError, match=r"file is not a folder; choose another place"):
        draw(timeline, tmp_path / "file" / "a.txt")


def test_no_program_at_all(programs):
    with pytest.raises(DrawError, match=r"no Graphviz to draw with; install Graphviz .* or run `pip install"):
        render(DOT, "svg")


def test_text_and_dot_need_no_program(programs, timeline, tmp_path):
    draw(timeline, tmp_path / "a.txt")
    draw(timeline, tmp_path / "a.dot")
    with pytest.raises(DrawError, match="no Graphviz"):
        draw(timeline, tmp_path / "a.svg")
    assert not (tmp_path / "a.svg").exists()


def test_the_system_comes_first_then_what_is_beside_python_then_path(programs, tmp_path):
    on_path = install(programs, "graphviz-pure", "")
    assert find_program().command == (str(on_path), "-Kneato")
    beside = install(tmp_path, "graphviz-pure", "")
    assert find_program().command == (str(beside), "-Kneato")
    assert not find_program().pdf
    dot = install(programs, "dot", "")
    assert find_program().command == (str(dot), "-Kneato")
    assert find_program().pdf
    neato = install(programs, "neato", "")
    assert find_program().command == (str(neato), "-Kneato")


def test_the_program_gets_source_and_options(programs):
    install(programs, "dot", "print(sys.argv[1:], sys.stdin.read())")
    assert render(DOT, "pdf", ["-Gdpi=99"]) == b"['-Kneato', '-n2', '-Tpdf', '-Gdpi=99'] graph { a }\n"


def test_pdf_needs_the_system(programs, timeline, tmp_path):
    install(programs, "graphviz-pure", "print('no')")
    with pytest.raises(DrawError, match=r"only the system's Graphviz writes \.pdf; install it, or draw an \.svg"):
        draw(timeline, tmp_path / "a.pdf")


def test_a_program_that_fails(programs):
    install(programs, "dot", "sys.exit('first\\nthe reason')")
    with pytest.raises(DrawError, match=r"dot failed: the reason; draw a \.dot file"):
        render(DOT, "svg")


def test_a_program_that_says_nothing(programs):
    install(programs, "dot", "sys.exit(3)")
    with pytest.raises(DrawError, match="dot failed: exit status 3"):
        render(DOT, "svg")


def test_a_program_that_hangs(programs):
    install(programs, "dot", "time.sleep(60)")
    began = time.perf_counter()
    with pytest.raises(DrawError, match=r"dot took more than 0\.5 s"):
        render(DOT, "svg", timeout=0.5)
    assert time.perf_counter() - began < 20


def test_a_program_that_is_none(programs):
    (programs / "dot").write_bytes(b"\x00\x01not a program")
    (programs / "dot").chmod(0o755)
    with pytest.raises(DrawError, match="dot does not start"):
        render(DOT, "svg")


def test_the_package_starts_light():
    code = "import sys, piper_dsl.draw; print({'rich', 'graphviz'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "set()"


def test_the_function_stays_what_it_is_beside_its_package(timeline, tmp_path):
    code = "import piper_dsl, piper_dsl.draw; from piper_dsl.draw import View; print(callable(piper_dsl.draw))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "True"


def test_every_name_of_the_package_is_there():
    from piper_dsl import draw as function

    package = sys.modules["piper_dsl.draw"]
    assert all(getattr(package, name) is not None for name in package.__all__)
    assert package.draw is function


# --- with a Graphviz of the system -----------------------------------------------------------------

needs_system = pytest.mark.skipif(not shutil.which("neato"), reason="there is no Graphviz on this machine")


@needs_system
@pytest.mark.parametrize("name", ["1f1b", "dualpipe"])
def test_both_programs_put_all_in_the_same_places(make_timeline, monkeypatch, name):
    source = draw_picture(find_scenes([Ran(make_timeline(name, p=4, m=8))], EVERYTHING)).source
    system = _places(render(source, "svg").decode())
    monkeypatch.setenv("PATH", "")
    own = _places(render(source, "svg").decode())
    assert set(system) == set(own)
    for title, at in own.items():
        assert system[title] == pytest.approx(at, abs=0.6)


def _places(svg: str) -> dict[str, tuple[float, float]]:
    """Where words begin, or boxes without words, by the titles of the nodes."""
    nodes = re.findall(r'class="node">\s*<title>(.*?)</title>(.*?)</g>', svg, re.DOTALL)
    found = {}
    for title, body in nodes:
        place = re.search(r'<text[^>]*? x="([-.0-9]+)" y="([-.0-9]+)"|points="([-.0-9]+),([-.0-9]+)', body)
        found[title] = tuple(float(number) for number in place.groups() if number is not None)
    return found


@needs_system
def test_pdf(timeline, tmp_path):
    draw(timeline, tmp_path / "a.pdf", EVERYTHING)
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF-")
    if shutil.which("pdftotext"):
        said = subprocess.run(["pdftotext", tmp_path / "a.pdf", "-"], capture_output=True, check=True).stdout.decode()
        assert "makespan" in said
        assert "rank 1" in said
