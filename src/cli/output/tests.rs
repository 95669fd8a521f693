//! Cutting, cleaning and choosing of text.

use std::io;
use std::sync::{Arc, Mutex};

use bridge_protocol::raw::RawJson;

use super::{BAD, Look, Output, cut, cut_middle, one_line, shows_unicode, wrapped};
use crate::cli::exit::Exit;
use crate::cli::problem::Problem;

/// A stream that a test reads afterwards.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl io::Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Page {
    fn read(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// A stream whose reader has left.
struct Closed;

impl io::Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn output(answers: impl io::Write + Send + 'static, notes: impl io::Write + Send + 'static) -> Output {
    Output {
        line_breaks: 2,
        look: Look::default(),
        note_look: Look::default(),
        json: false,
        quiet: false,
        in_chat: false,
        answers: Box::new(answers),
        notes: Box::new(notes),
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let notes = Page::default();
    let mut output = output(Closed, notes.clone());
    let problem = output.line("hello").unwrap_err();
    assert_eq!(problem.exit, Exit::Done);
    output.problem(&problem);
    assert_eq!(notes.read(), "");
}

#[test]
fn a_problem_is_one_line_and_a_hint() {
    let notes = Page::default();
    let mut output = output(io::sink(), notes.clone());
    output.problem(&Problem::new(Exit::Failed, "no\nsuch \u{1b}[31mthing").hint("look"));
    assert_eq!(notes.read(), "error: no such [31mthing\nhint: look\n");
}

#[test]
fn a_problem_is_one_line_of_json_for_programs() {
    let notes = Page::default();
    let mut output = output(io::sink(), notes.clone());
    output.json = true;
    output.problem(&Problem::new(Exit::Failed, "no\nsuch thing"));
    assert_eq!(
        notes.read(),
        "{\"error\":{\"kind\":\"failed\",\"message\":\"no\\nsuch thing\",\"retryable\":false,\"exitCode\":1}}\n"
    );
}

#[test]
fn a_value_is_one_line_with_its_bytes() {
    let answers = Page::default();
    let mut output = output(answers.clone(), io::sink());
    for json in [r#"{"n": 1.50,"b" :[ ]}"#, "{\"n\":\n 1}"] {
        output.raw(&RawJson::from_text(json.to_owned()).unwrap()).unwrap();
    }
    assert_eq!(answers.read(), "{\"n\": 1.50,\"b\" :[ ]}\n{\"n\":  1}\n");
}

#[test]
fn text_is_cut_by_columns() {
    let unicode = Look {
        unicode: true,
        ..Look::default()
    };
    let table = [
        ("short", 5, "short"),
        ("a longer one", 6, "a lon…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
    ];
    for (text, columns, expected) in table {
        assert_eq!(cut(text, columns, unicode), expected);
    }
    assert_eq!(cut("a longer one", 6, Look::default()), "a lon~");
}

#[test]
fn control_characters_reach_no_terminal() {
    let terminal = Look {
        columns: Some(80),
        ..Look::default()
    };
    assert_eq!(terminal.safe("a\u{1b}[2Jb\n\tc"), "a[2Jb\n\tc");
    assert_eq!(Look::default().safe("a\u{1b}[2Jb"), "a\u{1b}[2Jb");
    assert_eq!(one_line(" a\n b\u{7} "), "a b");
}

#[test]
fn styles_are_written_only_where_they_are_shown() {
    assert_eq!(Look::default().paint(BAD, "x"), "x");
    let coloured = Look {
        coloured: true,
        ..Look::default()
    };
    assert_eq!(coloured.paint(BAD, "x"), "\u{1b}[31mx\u{1b}[0m");
}

#[test]
fn the_first_locale_variable_decides_on_signs() {
    let table = [
        ([None, None, Some("en_US.UTF-8")], true),
        ([Some("C"), None, Some("en_US.UTF-8")], false),
        ([Some(""), Some("de_DE.utf8"), None], true),
        ([None, None, None], false),
    ];
    for (variables, expected) in table {
        let owned = variables.map(|value| value.map(str::to_owned));
        assert_eq!(shows_unicode(owned), expected, "{variables:?}");
    }
}

#[test]
fn long_lines_are_broken_between_words() {
    for (text, expected) in [
        ("one two three", "one two\nthree"),
        ("  one two three", "  one\n  two\n  three"),
        ("\u{1b}[1mone two\u{1b}[0m a", "\u{1b}[1mone two\u{1b}[0m\na"),
        ("longer-than-it", "longer-than-it"),
        ("a longer-than-it b", "a longer-than-it\nb"),
        ("", ""),
    ] {
        let indent = text.len() - text.trim_start().len();
        assert_eq!(wrapped(text, 8, indent), expected, "{text:?}");
    }
}

#[test]
fn a_sentence_is_not_broken_within_a_command() {
    let look = Look {
        columns: Some(30),
        ..Look::default()
    };
    for (text, expected) in [
        (
            "error: there is no such thing here at all",
            "error: there is no such thing\nhere at all",
        ),
        (
            "hint: repeat it with this: sessionctl ls --all",
            "hint: repeat it with this:\nsessionctl ls --all",
        ),
        (
            "hint: see sessionctl ls --all; it lists all",
            "hint: see sessionctl ls --all;\nit lists all",
        ),
        (
            "to install it: npm i -g a-program",
            "to install it:\nnpm i -g a-program",
        ),
        // A terminal breaks what is longer than a line, and gives it back as one line.
        (
            "it: sessionctl send x 'longer than a line'",
            "it: sessionctl send x 'longer than a line'",
        ),
    ] {
        assert_eq!(look.in_lines(text, 0), expected);
        assert_eq!(Look::default().in_lines(text, 0), text);
    }
}

#[test]
fn the_middle_of_a_path_is_cut() {
    for (columns, expected) in [(9, "/home/a/b"), (8, "/ho~/a/b"), (7, "/ho~a/b"), (1, "~")] {
        assert_eq!(cut_middle("/home/a/b", columns, Look::default()), expected);
    }
}
