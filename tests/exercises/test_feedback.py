"""Feedback pages show what helps, and neither hidden tests nor anything that runs."""

import re

import pytest
from bs4 import BeautifulSoup
from feedback import HideTests
from grading import Course
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output, new_raw_cell
from safe_html import SafeOutputs, clean
from toy_course import (
    ASSIGNMENT,
    ENDLESS,
    LEAKED,
    LEAKING,
    LEAKING_CELLS,
    RIGHT,
    SECRET,
    SQUARES,
    VISIBLE_ONLY,
    make_course,
    submit,
)
from verdicts import hidden_lines, verdict_of, without_hidden

TEST_SOURCE = "\n".join(
    [
        "check(pack, 3)",
        "### BEGIN HIDDEN TESTS",
        "check(pack, secret=41)",
        "check(pack, 3)",
        "### END HIDDEN TESTS",
        "finish(pack)",
    ]
)
ACTIVE = """
from IPython.display import HTML, SVG, Javascript, Markdown, Math, display, publish_display_data
display(HTML('<b onclick="alert(1)">bold</b><script>alert(2)</script><iframe src="//h"></iframe>'))
display(HTML('<img src="x" onerror="alert(3)"><a href="javascript:alert(4)">a</a>'))
display(HTML('<style>* {display: none}</style>'))
display(SVG('<svg xmlns="http://www.w3.org/2000/svg" onload="alert(5)"><circle r="4"/></svg>'))
display(Javascript('alert(6)'))
display(Markdown('*slanted* <img src=y onerror=alert(7)> [go](javascript:alert(8))'))
display(Math('</div><script>alert(9)</script>'))
png = '"><script>alert(10)</script>'
publish_display_data({'image/png': png}, {'image/png': {'width': '"onload="alert(11)'}})
print('<script>alert(12)</script>')
"""
MARKDOWN = """
Some **text**, `a < b`, $x < y$, <u onmouseover=alert(13)>raw</u><script>alert(14)</script>

<details ontoggle=alert(15)>more</details> [link](https://docs.pytorch.org)

<a href=" javascript:alert(16)">no</a>

```python
if a < b: pass
```
"""


def executed(error=None, line=None, count=7, source=TEST_SOURCE, name="AssertionError"):
    outputs = []
    if error is not None:
        frames = (
            [f"\x1b[36mCell In[{count}]\x1b[39m, line {line}\n----> {line} the source"]
            if line
            else []
        )
        outputs = [
            new_output("error", ename=name, evalue=error, traceback=[*frames, f"{name}: {error}"])
        ]
    return new_code_cell(source, execution_count=count, outputs=outputs)


def test_source_without_hidden_tests_is_what_the_student_was_given():
    assert without_hidden(TEST_SOURCE) == "check(pack, 3)\nfinish(pack)"


def test_a_line_that_is_also_visible_is_no_secret():
    assert hidden_lines(TEST_SOURCE) == [
        "### BEGIN HIDDEN TESTS",
        "check(pack, secret=41)",
        "### END HIDDEN TESTS",
    ]


def test_visible_tests_say_all_that_they_have_to_say():
    verdict = verdict_of(executed("Law: a\nexpected 3, found 4", line=1), {})
    assert verdict.message == "Law: a\nexpected 3, found 4"


def test_visible_tests_after_hidden_ones_are_visible():
    assert verdict_of(executed("expected 3, found 4", line=6), {}).message == "expected 3, found 4"


def test_hidden_tests_say_no_values():
    verdict = verdict_of(executed("expected 41, found 42", line=3), {})
    assert verdict.message == "A hidden test failed."


def test_the_reports_of_packlib_are_shown_as_they_are():
    report = 'this law is broken: data runs by step.\n\nRead: "Packing" in chapters/05_pack'
    assert verdict_of(executed(report, name="LawBroken"), {}).message == report


def test_a_report_links_to_the_book():
    step = HideTests(book_url="../html/")
    link = step._line_html('Read: "Packing and batch_sizes" in chapters/05_pack')
    page = "../html/chapters/05_pack.html#packing-and-batch-sizes"
    assert link == f'Read: <a href="{page}">Packing and batch_sizes</a>'


def test_an_error_in_a_hidden_test_does_not_repeat_its_inputs():
    assert (
        "41"
        not in verdict_of(
            executed("index 41 is out of range", line=3, name="IndexError"), {}
        ).message
    )
    own_class = verdict_of(executed("", line=3, name="Leak_41"), {})
    assert own_class.message == "A hidden test failed."


def test_an_error_without_a_known_place_counts_as_hidden():
    assert verdict_of(executed("expected 41"), {}).message == "A hidden test failed."


def test_the_students_own_line_is_shown():
    cell = executed("division by zero", line=3, name="ZeroDivisionError")
    cell.outputs[0].traceback.insert(1, "Cell In[2], line 2, in pack(x)\n----> 2 return x / 0")
    message = verdict_of(cell, {2: "def pack(x):\n    return x / 0"}).message
    assert message == "A hidden test ended with ZeroDivisionError.\nIn your code: return x / 0"


def test_a_test_that_never_ran_says_so():
    assert verdict_of(new_code_cell(TEST_SOURCE), {}).ended == "not run"


@pytest.mark.parametrize(
    "html",
    [
        '<a href="javascript:alert(1)">x</a>',
        '<a href="  JaVaScRiPt:alert(1)">x</a>',
        '<a href="data:text/html,<script>1</script>">x</a>',
        '<img src="https://elsewhere.invalid/x.png">',
        '<img src="data:image/svg+xml;base64,AAAA">',
        '<p style="position:fixed">x</p>',
        '<p onclick="1">x</p>',
        '<form action="x"><input></form>',
        '<meta http-equiv="refresh" content="0">',
        "<svg><script>1</script></svg>",
        "<math><mi xlink:href='javascript:1'></mi></math>",
    ],
)
def test_clean_leaves_nothing_that_runs_or_loads(html):
    soup = BeautifulSoup(clean(html), "html.parser")
    assert {tag.name for tag in soup.find_all()} <= {"a", "img", "p"}
    assert all(not tag.attrs or tag.attrs == {"href": ""} for tag in soup.find_all())


def test_clean_keeps_what_notes_are_made_of():
    html = (
        '<h2 id="a">T</h2><p>a <code>b &lt; c</code> <a href="https://docs.pytorch.org/">d</a></p>'
        '<table class="t"><tbody><tr><td colspan="2">1</td></tr></tbody></table>'
        '<img src="data:image/png;base64,AAAA" alt="x">'
    )
    assert clean(html) == html
    assert clean('<a href="../html/a_b.html#c-d">x</a>') == '<a href="../html/a_b.html#c-d">x</a>'


def test_outputs_keep_no_metadata_and_no_unknown_kinds():
    data = {
        "text/plain": "1",
        "application/javascript": "1",
        "image/svg+xml": "1",
        "text/latex": "1",
    }
    cell = new_code_cell("1", outputs=[new_output("display_data", data=data, metadata={"a": '"'})])
    cell.metadata["tags"] = ['"><script>']
    notebook = _notebook(cell, new_raw_cell("<script>1</script>raw"))
    SafeOutputs().preprocess(notebook, {})
    assert cell.outputs[0] == {
        "output_type": "display_data",
        "data": {"text/plain": "1"},
        "metadata": {},
    }
    assert cell.metadata == {}
    assert notebook.cells[1].source == "1raw"


def _notebook(*cells):
    from nbformat.v4 import new_notebook

    return new_notebook(cells=list(cells), metadata={"title": "</title><script>1</script>"})


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The feedback pages of a small class, by student."""
    folder = make_course(tmp_path_factory.mktemp("feedback"))
    course = Course(folder, folder / "log.txt")
    course.release(ASSIGNMENT)
    leak = new_code_cell("for text in In: print(text)")
    hostile = [
        new_code_cell(ACTIVE),
        new_markdown_cell(MARKDOWN),
        new_raw_cell("<script>alert(17)</script>"),
    ]
    submit(folder, "amal", RIGHT)
    submit(folder, "bo", {**RIGHT, **SQUARES})
    submit(folder, "chi", {**RIGHT, **VISIBLE_ONLY})
    submit(folder, "dana", {**RIGHT, **ENDLESS})
    submit(folder, "eve", RIGHT, extra=hostile)
    submit(folder, "fay", {**RIGHT, **VISIBLE_ONLY}, extra=[leak])
    submit(folder, "gil", LEAKING, extra=[new_code_cell(text) for text in LEAKING_CELLS])
    students = course.students(ASSIGNMENT)
    for student in students:
        course.grade(ASSIGNMENT, student)
    return {
        student: (folder / "feedback" / student / ASSIGNMENT / f"{ASSIGNMENT}.html").read_text(
            encoding="utf-8"
        )
        for student in students
    }


def shown_text(page):
    return re.sub(r"\s+", " ", BeautifulSoup(page, "html.parser").body.get_text(" "))


def test_no_page_shows_a_hidden_test(pages):
    assert len(pages) == 7
    for page in pages.values():
        assert SECRET not in page and SECRET not in shown_text(page)
        assert "secret message" not in page
        assert "HIDDEN TESTS" not in page


def test_pages_say_points_and_message_of_each_test(pages):
    assert "part 1 double: 2 of 2 points" in shown_text(pages["amal"])
    bo = shown_text(pages["bo"])
    assert "part 1 double: 0 of 2 points" in bo
    assert "Law: double gives twice its input Hint: for 3 you gave 9, not twice" in bo
    assert "Traceback" not in bo
    assert "A hidden test failed." in shown_text(pages["chi"])
    assert "Stopped after" in shown_text(pages["dana"])


def test_pages_say_that_points_are_open(pages):
    text = shown_text(pages["amal"])
    assert "part 3 why: to be graded by hand, of 2" in text
    assert "To be graded by hand: 2 points are still open." in text


def test_a_hidden_input_that_was_kept_is_not_shown(pages):
    page, text = pages["gil"], shown_text(pages["gil"])
    assert LEAKED not in page and LEAKED not in text
    assert not re.search(r"[A-Za-z0-9+/]{80}", text)  # the session, encoded
    assert "shown early" in text
    assert text.count("What this cell printed is not shown: hidden tests ran before it.") == 5
    assert "It ended with ValueError." in text and "In your code: raise ValueError" in text
    assert "It ended with an error." in text  # a class of the student's own
    assert "It ended with ZeroDivisionError. In your code: print(1 / 0)" in text


def test_points_and_own_lines_stay_after_a_hidden_test(pages):
    text = shown_text(pages["gil"])
    assert "part 1 double: 2 of 2 points" in text
    assert "part 2 triple: 0 of 3 points" in text
    assert "In your code: raise AssertionError(str(seen))" in text


def test_a_visible_test_says_its_law_after_a_hidden_one():
    source = 'assert f(1) == 3, "Law: three times"'
    cell = executed("Law: three times\n[3, 7]", line=1, source=source)
    assert verdict_of(cell, {}, wary=True).message == "Law: three times"


@pytest.mark.parametrize(
    ("paragraphs", "kept"),
    [
        ("law.|The input: 1|    grid|Your function printed:\n    7|A hint: b|Read: c",
         "law.|A hint: b|Read: c"),
        ("law.|It stopped.\n    line 2|It says: 7|Read: 7|The input: 1|A hint: b|Read: c",
         "law.|It stopped.\n    line 2|A hint: b|Read: c"),
        ("not written yet.|A hint: b|Read: c", "not written yet.|A hint: b|Read: c"),
        ("law.|Your code calls it.|Read: c", "law.|Your code calls it.|Read: c"),
    ],
)  # fmt: skip
def test_a_report_after_a_hidden_test_holds_no_value(paragraphs, kept):
    cell = executed(paragraphs.replace("|", "\n\n"), name="LawBroken")
    assert verdict_of(cell, {}, wary=True).message == kept.replace("|", "\n\n")


def test_a_page_runs_nothing_of_the_students(pages):
    clean_page, page = (BeautifulSoup(pages[name], "html.parser") for name in ("amal", "eve"))
    assert [tag.get_text() for tag in page("script")] == [
        tag.get_text() for tag in clean_page("script")
    ]
    assert len(page("style")) == len(clean_page("style"))
    assert not page(["iframe", "svg", "object", "embed", "form", "details"])
    attributes = {name for tag in page.body.find_all() for name in tag.attrs}
    assert not {name for name in attributes if name.startswith("on")}
    links = [tag["href"] for tag in page.body("a") if tag.has_attr("href")]
    assert not [link for link in links if "script" in link]
    assert all(tag.get("src", "data:image/png").startswith("data:image/png") for tag in page("img"))


def test_a_cleaned_page_still_shows_what_is_harmless(pages):
    text = shown_text(pages["eve"])
    assert "bold" in text and "slanted" in text and "a < b" in text and "if a < b : pass" in text
    assert "alert(12)" in text  # printed text is shown as text
